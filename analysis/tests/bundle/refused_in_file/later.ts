// First.
export const later = () => import("./other.ts");
