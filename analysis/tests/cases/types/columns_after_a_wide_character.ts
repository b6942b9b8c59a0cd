let flag: "👍" | "é" = "👍" as any; await mcp[flag].read({});
