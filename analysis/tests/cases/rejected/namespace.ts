namespace N { export const x = 1; }
