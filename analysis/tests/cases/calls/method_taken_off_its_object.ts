const o = { fs: mcp.fs, run() { return this.fs.read({}); } };
const { run } = o;
run.call(o);
