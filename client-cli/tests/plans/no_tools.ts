return args.list.map((x: number) => x * 2);
