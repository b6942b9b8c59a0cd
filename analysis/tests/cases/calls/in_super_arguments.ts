class A { constructor(value) { this.value = value; } }
class B extends A { constructor() { super(mcp.a.b({})); } }
new B();
