args.limit ??= 10;
let size = args.size;
size ||= 5;
return [args.limit * 2, size.toFixed(2)];
