globalThis[args.x].fs.read({});
Object.keys(globalThis);
