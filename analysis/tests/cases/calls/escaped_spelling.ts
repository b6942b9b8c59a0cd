await m\u0063p.fs.read({});
await mcp.f\u{73}.re\u0061d({});
await mcp["f\x73"]["re\u0061d"]({});
