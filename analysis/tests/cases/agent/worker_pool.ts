interface Page {
  url: string;
  title: string;
  bytes: number;
}

async function pool<T, R>(items: readonly T[], limit: number, work: (item: T) => Promise<R>): Promise<R[]> {
  const results = new Array<R>(items.length);
  let next = 0;
  async function worker(): Promise<void> {
    while (next < items.length) {
      const index = next++;
      results[index] = await work(items[index]);
    }
  }
  await Promise.all(Array.from({ length: Math.min(limit, items.length) }, () => worker()));
  return results;
}

const sitemap = await mcp.web.get({ url: `${args.site}/sitemap.xml` });
const urls: string[] = [...sitemap.body.matchAll(/<loc>(.*?)<\/loc>/g)]
  .map((match) => match[1])
  .slice(0, args.limit ?? 50);

const pages = await pool(urls, 4, async (url): Promise<Page> => {
  const html: string = await mcp.fetch.fetch({ url, raw: true });
  const title = /<title>(.*?)<\/title>/s.exec(html)?.[1].trim() ?? "";
  return { url, title, bytes: html.length };
});

const found = await pool(pages, 2, async ({ url, title }) => {
  if (title === "") return false;
  const answer = await mcp.tavily.search({ query: `"${title}" site:${new URL(url).host}`, max_results: 3 });
  return answer.results.some((hit: { url: string }) => hit.url === url);
});

const hidden = pages.filter((_, index) => !found[index]).map((page) => page.url);
const sorted: Page[] = await mcp.collections.sort({ items: pages, by: "bytes", order: "desc" });

await mcp.filesystem.write_file({
  path: "seo.json",
  content: JSON.stringify({ hidden, largest: sorted.slice(0, 5) }, null, 2),
});
return { pages: pages.length, hidden: hidden.length };
