interface Section {
  title: string;
  text: string;
}

async function collect(folder: string): Promise<Section[]> {
  function clean(text: string): string {
    return text.replace(/\r\n/g, "\n").trim();
  }

  async function read(name: string): Promise<string> {
    const text: string = await mcp.filesystem.read_text_file({ path: `${folder}/${name}` });
    return clean(text);
  }

  async function section(name: string): Promise<Section> {
    const text = await read(name);
    const length = await mcp.string.length({ text });
    const title = /^# (.+)$/m.exec(text)?.[1] ?? name;
    return { title: `${title} (${length.words} words)`, text: text.replace(/^# .+\n/, "") };
  }

  const order = (await read("ORDER")).split("\n");
  const intro = await section("intro.md");
  const rest = await Promise.all(order.map((name) => section(name)));
  return [intro, ...rest];
}

const sections = await collect(args.folder ?? "docs");
const contents = sections.map(({ title }, index) => `${index + 1}. ${title}`).join("\n");
const body = sections.map(({ title, text }) => `# ${title}\n\n${text}`).join("\n\n");

await mcp.filesystem.write_file({ path: args.out ?? "book.md", content: `${contents}\n\n${body}` });
const digest: string = await mcp.crypto.hash({ data: body });

const images = [...new Set(body.match(/!\[[^\]]*\]\([^)]+\)/g) ?? [])];
const sizes: Record<string, number> = Object.fromEntries(
  await Promise.all(
    images.map(async (image) => {
      const path = image.slice(image.indexOf("(") + 1, -1);
      const info: string = await mcp.filesystem.get_file_info({ path });
      return [path, Number(/size: (\d+)/.exec(info)?.[1] ?? 0)] as const;
    }),
  ),
);
const total = Object.values(sizes).reduce((sum, size) => sum + size, 0);
if (total > 5_000_000) {
  await mcp.slack.post_message({
    channel: args.channel,
    text: `${images.length} images of the book have ${total} bytes.`,
  });
}
return { sections: sections.length, digest };
