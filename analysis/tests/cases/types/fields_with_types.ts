class Job {
  [key: string]: any;
  private readonly path: string = "x";
  declare ghost: number;
  run(): Promise<string> { return mcp.fs.read({ path: this.path }); }
}
return await new Job().run();
