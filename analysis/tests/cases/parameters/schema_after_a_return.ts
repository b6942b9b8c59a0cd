const head = `${args.always}`;
if (!args.path) return "usage";
return head + args.path.trim();
