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
return { sections: sections.length, digest };
