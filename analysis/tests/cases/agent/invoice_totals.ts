interface Line {
  description: string;
  quantity: number;
  price: number;
  vat: 0 | 7 | 19;
}
interface Invoice {
  number: string;
  customer: string;
  lines: Line[];
}

const read = mcp.filesystem.read_text_file;
const parse = mcp.json.parse;
const round = mcp.math.round;

const folder: string = args.folder;
const listing: string = await mcp.filesystem.list_directory({ path: folder });
const names = listing
  .split("\n")
  .map((line) => /^\[FILE\] (.+\.json)$/.exec(line)?.[1])
  .filter((name): name is string => name !== undefined);

let grand = 0;
const byCustomer = new Map<string, number>();
const rejected: string[] = [];

for (const name of names) {
  const text: string = await read({ path: `${folder}/${name}` });
  let invoice: Invoice;
  try {
    invoice = await parse({ data: text });
    if (!Array.isArray(invoice.lines) || invoice.lines.length === 0) throw new Error("it has no lines");
  } catch (error) {
    rejected.push(`${name}: ${(error as Error).message}`);
    continue;
  }
  const net = invoice.lines.reduce((sum, { quantity, price }) => sum + quantity * price, 0);
  const tax = invoice.lines.reduce((sum, { quantity, price, vat }) => sum + (quantity * price * vat) / 100, 0);
  const gross: number = await round({ value: net + tax, digits: 2 });
  grand += gross;
  byCustomer.set(invoice.customer, (byCustomer.get(invoice.customer) ?? 0) + gross);
}

const total: number = await round({ value: grand, digits: 2 });
const table: string = await mcp.string.join({
  parts: [...byCustomer].sort(([, a], [, b]) => b - a).map(([customer, sum]) => `${customer}: ${sum.toFixed(2)}`),
  separator: "\n",
});
await mcp.filesystem.write_file({ path: `${folder}/TOTAL.txt`, content: `${table}\n\nTotal ${total}\n` });

if (rejected.length > 0) {
  await mcp.slack.post_message({ channel: args.channel, text: `Not counted:\n${rejected.join("\n")}` });
}
return { invoices: names.length - rejected.length, total };
