const names = ["read", "stat"] as const;
for (const name of names) await mcp.fs[name]({ path: "x" });
