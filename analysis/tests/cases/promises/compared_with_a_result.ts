const expected = await mcp.crypto.hash({ data: "a" });
const actual = mcp.crypto.hash({ data: "b" });
const same = mcp.crypto.hash({ data: "c" });
const pending = new Map([["k", same]]);
return [actual === expected, pending.get("k") === same, (await actual) === expected];
