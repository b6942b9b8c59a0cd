const list = Array.isArray(args.names) ? args.names : [args.names.trim()];
return typeof args.id === "number" ? args.id - 1 : [args.id.trim(), list];
