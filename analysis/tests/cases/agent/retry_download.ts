const urls: string[] = args.urls;
const attempts = 4;

const sleep = (ms: number) => new Promise<void>((resolve) => setTimeout(resolve, ms));

async function download(url: string): Promise<string | null> {
  let wait = 250;
  for (let attempt = 1; attempt <= attempts; attempt++) {
    try {
      const answer = await mcp.web.get({ url, timeout_ms: 10_000 });
      if (answer.status === 429 || answer.status >= 500) {
        throw new Error(`status ${answer.status}`);
      }
      if (answer.status >= 400) return null;
      return answer.body;
    } catch (error) {
      console.warn(`attempt ${attempt} of ${attempts} for ${url}: ${(error as Error).message}`);
      await sleep(wait);
      wait *= 2;
    }
  }
  return null;
}

const saved: string[] = [];
const failed: string[] = [];
for (const url of urls) {
  const body = await download(url);
  if (body === null) {
    failed.push(url);
    continue;
  }
  const digest: string = await mcp.crypto.hash({ data: body });
  const file = `downloads/${digest.slice(0, 16)}.html`;
  await mcp.filesystem.write_file({ path: file, content: body });
  saved.push(file);
}

if (failed.length > 0) {
  await mcp.filesystem.write_file({ path: "downloads/failed.txt", content: failed.join("\n") });
}
return { saved, failed };
