interface Person {
  name: string;
  country: string;
  city?: string;
}

const defaults = { greeting: "Hello", closing: "Kind regards" } satisfies Record<string, string>;
type Words = Partial<typeof defaults>;

async function render(
  template: string,
  person: Person,
  { greeting = defaults.greeting, closing = defaults.closing }: Words = {},
): Promise<string> {
  return await mcp.string.template({
    template,
    values: { name: person.name, city: person.city ?? "", greeting, closing },
  });
}

const [template, people] = await Promise.all([
  mcp.filesystem.read_text_file({ path: args.template }) as Promise<string>,
  mcp.filesystem.read_text_file({ path: args.people }).then((text: string) => JSON.parse(text) as Person[]),
]);

const french: Words = { greeting: "Bonjour", closing: "Cordialement" };
const written: string[] = [];

for (const person of people) {
  const letter =
    person.country === "FR" ? await render(template, person, french) : await render(template, person);
  const slug: string = await mcp.string.slugify({ text: person.name });
  const path = `letters/${slug}.txt`;
  await mcp.filesystem.write_file({ path, content: letter });
  written.push(path);
}

await mcp.filesystem.write_file({ path: "letters/INDEX", content: written.join("\n") });
return { letters: written.length };
