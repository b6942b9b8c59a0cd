class A { constructor() { super(); } }
