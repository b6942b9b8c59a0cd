class A { accessor value = 1; }
