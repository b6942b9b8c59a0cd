// Does briefly what most programs do. A forked child runs it before it gets a program, so that the pages which programs
// write to are copied from the zygote's before somebody waits. It leaves nothing that a program can see.
(async function (args) {
  return JSON.stringify({ made: await args.map((n) => `${n}`) });
})([1])
