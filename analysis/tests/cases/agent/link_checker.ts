interface Broken {
  page: string;
  url: string;
  status: number;
}

const {
  filesystem: { search_files, read_text_file, write_file },
  web,
} = mcp;

const listing: string = await search_files({ path: args.docs ?? "docs", pattern: "**/*.md" });
const pages = listing.split("\n").filter((line) => line.endsWith(".md"));
const seen = new Map<string, Promise<number>>();

function statusOf(url: string): Promise<number> {
  let known = seen.get(url);
  if (!known) {
    known = web.get({ url, method: "HEAD" }).then(
      (answer: { status: number }) => answer.status,
      () => 0,
    ) as Promise<number>;
    seen.set(url, known);
  }
  return known;
}

const broken: Broken[] = [];
await Promise.all(
  pages.map(async (page) => {
    const text: string = await read_text_file({ path: page });
    const urls = [...text.matchAll(/\]\((https?:[^)\s]+)\)/g)].map((match) => match[1]);
    const statuses = await Promise.all(urls.map((url) => statusOf(url)));
    urls.forEach((url, index) => {
      const status = statuses[index];
      if (status === 0 || status >= 400) broken.push({ page, url, status });
    });
  }),
);

if (broken.length === 0) return { ok: true, pages: pages.length };

const byPage: Record<string, Broken[]> = await mcp.collections.group_by({ items: broken, by: "page" });
const report = Object.entries(byPage).map(([page, links]) => {
  const items = links.map(({ url, status }) => `- ${url} (${status === 0 ? "no answer" : status})`);
  return `## ${page}\n${items.join("\n")}`;
});
await write_file({ path: "broken-links.md", content: report.join("\n\n") });
return { ok: false, broken: broken.length };
