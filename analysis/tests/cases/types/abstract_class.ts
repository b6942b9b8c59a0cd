abstract class Source {
  abstract read(): Promise<string>;
  twice() { return Promise.all([this.read(), this.read()]); }
}
class File extends Source {
  read() { return mcp.fs.read({ path: "x" }); }
}
return await new File().twice();
