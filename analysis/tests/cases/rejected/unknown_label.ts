for (const x of args.list) { break outer; }
