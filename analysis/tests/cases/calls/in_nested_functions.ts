const run = () => () => function () {
  return mcp.a.deep({});
};
run()()();
