declare const mcp: any;
declare function unused(): void;
export declare const gone: number;
export interface Line { text: string }
export const log = (text: string): Line => ({ text: mcp.string.trim({ text }) });
