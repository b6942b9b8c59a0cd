for (const path of ["a", "b"]) await mcp.fs.read({ path });
