const größe = "日本語 😀";
await mcp.a.b({ größe }); await mcp.a.c({ s: "é" });
