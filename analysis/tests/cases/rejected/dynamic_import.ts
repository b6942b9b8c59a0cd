const fs = await import("node:fs");
const here = import.meta.url;
