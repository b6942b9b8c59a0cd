await mcp.filesystem.write_file({
  path: "a/very/long/path/that/nobody/would/want/to/read/in/full/but/must/be/told/to/be/long.txt",
  content: "one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen",
});
await mcp.shell.exec({ command: ["sh", "-c", "cd /tmp && find . -name '*.log' -mtime +7 -print0 | xargs -0 rm -v"] });
return await mcp.json.merge({ target: { a: 1, b: { c: [1, 2, 3] } }, patch: { b: { "odd key": args.x } } });
