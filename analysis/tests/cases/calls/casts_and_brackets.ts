await (mcp as any).fs!.read({ path: "a" });
await ((mcp.fs) satisfies object).list({});
