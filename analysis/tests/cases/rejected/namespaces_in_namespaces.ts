namespace A.B { export const x = 1; }
