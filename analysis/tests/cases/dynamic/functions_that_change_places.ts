const f = (x) => x;
const g = (x) => x.read({});
const list = [f, g];
const other = list;
other.reverse();
list[0](mcp.fs);
