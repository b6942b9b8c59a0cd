interface Note {
  title: string;
  body: string;
  tags: string[];
}

class NoteStore {
  private readonly fs = mcp.filesystem;
  readonly folder: string;

  constructor(folder: string) {
    this.folder = folder;
  }

  private pathOf(title: string): string {
    return `${this.folder}/${title.toLowerCase().replace(/\W+/g, "-")}.json`;
  }

  async load(title: string): Promise<Note> {
    const text: string = await this.fs.read_text_file({ path: this.pathOf(title) });
    const note = JSON.parse(text) as Partial<Note>;
    return { title, body: note.body ?? "", tags: note.tags ?? [] };
  }

  async save(note: Note): Promise<void> {
    await this.fs.write_file({
      path: this.pathOf(note.title),
      content: JSON.stringify(note, null, 2),
    });
  }
}

const store = new NoteStore(args.folder ?? "notes");
const source = await store.load(args.source);
const target = await store.load(args.target);

const sections: string[] = await mcp.string.split({ text: source.body, separator: "\n## " });
const moved = sections.find((section) => section.startsWith(args.section));
if (moved === undefined) {
  return { moved: false, sections: sections.map((section) => section.split("\n")[0]) };
}

await store.save({ ...source, body: sections.filter((section) => section !== moved).join("\n## ") });
await store.save({
  ...target,
  body: `${target.body}\n## ${moved}`,
  tags: [...new Set([...target.tags, ...source.tags])],
});
return { moved: true, from: source.title, to: target.title };
