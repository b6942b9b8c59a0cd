for (const action of ["start", "stop"]) await mcp.svc[action]({});
await mcp["a" + "b"]["c" + `${"d"}`]({});
