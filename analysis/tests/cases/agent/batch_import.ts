interface Contact {
  email: string;
  name: string;
}
interface Outcome {
  ok: number;
  failed: string[];
}

const raw: string = await mcp.filesystem.read_text_file({ path: args.file });
const contacts = JSON.parse(raw) as Contact[];
const valid = contacts.filter(({ email }) => /^[^@\s]+@[^@\s]+$/.test(email));

const unique: Contact[] = await mcp.collections.unique({ items: valid, by: "email" });
const batches: Contact[][] = await mcp.collections.chunk({ items: unique, size: args.batchSize ?? 50 });

const outcomes: Outcome[] = [];
for (const [index, batch] of batches.entries()) {
  const settled = await Promise.allSettled(
    batch.map((contact) => mcp.http.post({ url: `${args.api}/contacts`, body: contact })),
  );
  const failed = settled.flatMap((result, i) =>
    result.status === "rejected" || result.value.status >= 400 ? [batch[i].email] : [],
  );
  outcomes.push({ ok: batch.length - failed.length, failed });
  if (failed.length > batch.length / 2) {
    console.error(`most of batch ${index + 1} failed, stopping`);
    break;
  }
}

const ok = outcomes.reduce((sum, outcome) => sum + outcome.ok, 0);
const failed = outcomes.flatMap((outcome) => outcome.failed);
const percent: number = await mcp.math.round({
  value: unique.length === 0 ? 0 : (ok / unique.length) * 100,
  digits: 1,
});
if (failed.length > 0) {
  await mcp.filesystem.write_file({ path: `${args.file}.failed`, content: failed.join("\n") });
}
return { ok, failed: failed.length, percent };
