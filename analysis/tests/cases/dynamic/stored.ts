const state: any = {};
state.fs = mcp.fs;
window.tool = mcp.a.b;
