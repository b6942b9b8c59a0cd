const { limit = 10, path } = args;
const unit = args.unit ?? "km";
const tags = args.tags?.map((tag) => tag.trim());
if (args.verbose) console.log(`verbose ${args.verbose}`);
return [limit * 2, unit, tags, path.trim()];
