// Touches the pages that most programs write to. A forked child runs it before its program arrives, so that the pages
// are copied from the zygote in advance. It has no effect that a program can observe.
(async function (args) {
  return JSON.stringify({ made: await args.map((n) => `${n}`) });
})([1])
