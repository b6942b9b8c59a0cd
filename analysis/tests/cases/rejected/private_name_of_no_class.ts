class A { read() { return this.#path; } }
