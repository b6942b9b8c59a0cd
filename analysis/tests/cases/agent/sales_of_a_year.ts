interface Sale {
  month: string;
  amount: number;
}
interface Summary {
  month: string;
  mean: number;
  sum: number;
}

const { sqlite, math, collections, filesystem: fs, slack } = mcp;

const { rows } = (await sqlite.query({
  sql: "select strftime('%m', day) as month, amount from sales where strftime('%Y', day) = ?",
  parameters: [String(args.year)],
})) as { rows: Sale[] };
if (rows.length === 0) throw new Error(`no sales in ${args.year}`);

const byMonth: Record<string, Sale[]> = await collections.group_by({ items: rows, by: "month" });

const summaries: Summary[] = [];
for (const month of Object.keys(byMonth).sort()) {
  const { mean, sum } = await math.stats({ numbers: byMonth[month].map((sale) => sale.amount) });
  summaries.push({ month, mean, sum });
}

const first = summaries[0];
const last = summaries[summaries.length - 1];
const change: number = await math.eval({
  expression: "(b - a) / a",
  variables: { a: first.sum, b: last.sum },
});
const trend = change > 0.05 ? "up" : change < -0.05 ? "down" : "flat";

await fs.write_file({
  path: `reports/${args.year}.json`,
  content: JSON.stringify({ summaries, trend }, null, 2),
});
if (trend === "down") {
  await slack.post_message({
    channel: args.channel,
    text: `Sales of ${args.year} fell by ${(-change * 100).toFixed(1)} %.`,
  });
}
return { months: summaries.length, trend };
