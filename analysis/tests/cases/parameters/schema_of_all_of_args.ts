return [args.path.trim(), JSON.stringify(args)];
