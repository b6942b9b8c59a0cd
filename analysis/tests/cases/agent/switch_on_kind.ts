type Job =
  | { kind: "note"; title: string; text: string; timezone?: string }
  | { kind: "remind"; title: string; hours: number }
  | { kind: "publish"; path: string; channel: string };

const job = args.job as Job;
let outcome: string;

switch (job.kind) {
  case "note": {
    const stamp: string = await mcp.datetime.now({ timezone: job.timezone ?? "UTC" });
    const slug: string = await mcp.string.slugify({ text: job.title });
    await mcp.filesystem.write_file({ path: `notes/${stamp.slice(0, 10)}-${slug}.md`, content: job.text });
    outcome = `noted ${job.title}`;
    break;
  }
  case "remind": {
    const due: string = await mcp.datetime.add({ datetime: await mcp.datetime.now({}), hours: job.hours });
    await mcp.memory.create_entities({
      entities: [{ name: job.title, entityType: "reminder", observations: [`due ${due}`] }],
    });
    outcome = `reminder at ${due}`;
    break;
  }
  case "publish": {
    const text: string = await mcp.filesystem.read_text_file({ path: job.path });
    const length = await mcp.string.length({ text });
    if (length.words > 5000) throw new Error(`${job.path} is too long to post`);
    const posted = await mcp.slack.post_message({ channel: job.channel, text });
    outcome = posted.ok ? `posted as ${posted.ts}` : `not posted: ${posted.error}`;
    break;
  }
  default:
    throw new Error("unknown kind of job");
}

await mcp.filesystem.write_file({ path: "jobs.log", content: `${job.kind}: ${outcome}\n` });
return outcome;
