// What every program does, in small. A forked child runs it before it is given a program: the memory that a program
// will write to is the child's own then, and need not be copied while somebody waits. A program sees nothing of it.
(async function (args) {
  return JSON.stringify({ made: await args.map((n) => `${n}`) });
})([1])
