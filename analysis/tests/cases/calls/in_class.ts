class Loader extends Base(mcp.a.parent({})) {
  static ready = mcp.a.once({});
  static {
    mcp.a.boot({});
  }
  field = mcp.a.field({});
  #secret = mcp.a.secret({});
  constructor() {
    super(mcp.a.up({}));
  }
  [mcp.a.name({})]() {
    return mcp.a.body({});
  }
}
