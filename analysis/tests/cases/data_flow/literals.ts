await mcp.a.b({ s: "x", n: -1.5, t: true, z: null, list: [1, [2]], o: { k: "v" }, u: undefined });
const path = "a" + "/b";
await mcp.a.b({ path });
