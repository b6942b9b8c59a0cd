class Api {
  fs = mcp.fs;
  run() {
    return this.fs.read({});
  }
}
helper(new Api());
