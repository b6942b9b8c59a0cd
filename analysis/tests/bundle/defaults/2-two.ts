export /* a */ default class extends Object { n = 2 }
