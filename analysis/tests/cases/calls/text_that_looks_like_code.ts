// function class export mcp.not.called()
const s = "function () { class X {} export mcp.not.called() }";
await mcp.a.b({ s });
