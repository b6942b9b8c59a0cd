const s = "‮⁦"; await mcp.a["b‮"]({});
