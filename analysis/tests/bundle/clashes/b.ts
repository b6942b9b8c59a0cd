const count = { count: 1 };
export const Date = () => count.count;
export const read = () => ({ count });
