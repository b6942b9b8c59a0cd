const { path, ...rest } = args;
return [`${path}`, rest];
