type Row = Record<string, string>;

const { read_text_file, write_file } = mcp.filesystem;

const parseCsv = (text: string): Row[] => {
  const [head, ...lines] = text.trim().split("\n");
  const columns = head.split(",").map((column) => column.trim());
  return lines.map((line) => {
    const cells = line.split(",");
    return Object.fromEntries(columns.map((column, i) => [column, cells[i]?.trim() ?? ""]));
  });
};

const customers = parseCsv(await read_text_file({ path: args.customers }));
const orders = await mcp.sqlite.query({
  sql: "select customer_id, sum(total) as total, count(*) as n from orders where day >= ? group by customer_id",
  parameters: [args.since],
});

const byId = new Map<string, Row>();
for (const customer of customers) byId.set(customer.id, customer);

interface Joined {
  name: string;
  country: string;
  total: number;
  orders: number;
}

const joined: Joined[] = [];
let orphans = 0;
for (const { customer_id, total, n } of orders.rows) {
  const customer = byId.get(String(customer_id));
  if (customer === undefined) {
    orphans++;
    continue;
  }
  joined.push({ name: customer.name, country: customer.country, total, orders: n });
}

const ranked: Joined[] = await mcp.collections.sort({ items: joined, by: "total", order: "desc" });
const perCountry = await mcp.collections.sum_by({ items: joined, by: "total", group: "country" });
const stats = await mcp.math.stats({ numbers: orders.rows.map((row: { total: number }) => row.total) });

const lines = ranked.map((row) => [row.name, row.country, row.total.toFixed(2), row.orders].join(","));
await write_file({
  path: args.out ?? "out/customers.csv",
  content: ["name,country,total,orders", ...lines].join("\n"),
});
await write_file({
  path: "out/summary.json",
  content: JSON.stringify({ perCountry, mean: stats.mean, orphans }, null, 2),
});
return { customers: ranked.length, orphans };
