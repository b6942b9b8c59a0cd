if (!args.path) throw new Error("no path");
return args.path.trim();
