const key = await mcp.a.key({});
class Named {
  [key.field] = 1;
  fixed = 2;
}
class Called {
  [key.method]() { return 1; }
  static [key.other] = 2;
}
class Plain {
  fixed = 2;
}
await mcp.a.use({ named: new Named() });
await mcp.a.use({ called: Object.keys(Called) });
await mcp.a.use({ plain: new Plain() });
