enum Color { Red, Green }
const enum Size { S }
