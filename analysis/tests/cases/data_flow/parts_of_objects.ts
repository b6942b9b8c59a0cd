const state = { todo: [], done: [], count: 0 };
state.todo.push(args.task);
await mcp.a.use({ todo: state.todo });
await mcp.a.use({ done: state.done });
const config = { depth: 1 };
const context = { config, results: [] };
context.results.push(args.result);
await mcp.a.use({ depth: config.depth });
const make = (name) => {
  const one = { name, lines: [] };
  one.lines.push(name);
  return one;
};
const first = make(args.first);
const second = make(args.second);
first.lines.push(args.more);
await mcp.a.use({ first });
await mcp.a.use({ second });
const find = (list, at) => list[at];
const ours = [{ v: 1 }];
const theirs = [{ v: 1 }];
find(ours, 0).v = args.ours;
find(theirs, 0).v = args.theirs;
await mcp.a.use({ ours });
await mcp.a.use({ theirs });
class Queue {
  items = [];
  add(item) {
    this.items.push(item);
    return this;
  }
}
const left = new Queue().add(args.left);
const right = new Queue();
right.add(args.right);
await mcp.a.use({ left: left.items });
await mcp.a.use({ right: right.items });
