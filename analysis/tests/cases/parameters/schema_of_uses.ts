/** Doubles, and greets. */
const greeting = `Hello ${args.name}`;
const half = args.amount / 2;
const first = args.items.map((item) => item.id);
return { greeting, half, first, note: args.note };
