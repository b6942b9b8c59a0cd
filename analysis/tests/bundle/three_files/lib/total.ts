export type Currency = "EUR" | "USD";
export default (prices: number[]) => prices.reduce((sum, price) => sum + price, 0)
