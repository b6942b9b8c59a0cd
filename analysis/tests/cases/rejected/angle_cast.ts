const x = (<any>mcp.fs).stat;
