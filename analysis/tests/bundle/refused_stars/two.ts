export const twice = 2;
