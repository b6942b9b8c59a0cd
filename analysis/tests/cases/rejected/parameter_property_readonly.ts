class A {
  constructor(readonly path: string, protected n = 1) {}
}
