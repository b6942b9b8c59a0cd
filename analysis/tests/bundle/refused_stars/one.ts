export const twice = 1;
