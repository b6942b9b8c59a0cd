class A { run(@inject store) {} }
