outer: for (const x of args.list) {
  for (const y of x.list) {
    if (await mcp.a.skip({ y })) continue outer;
    await mcp.a.do({ y });
  }
  await mcp.a.end({ x });
}
