class A { @observable count = 0; }
