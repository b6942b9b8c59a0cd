const f = (args) => `${args.mine}`;
return f({ mine: args.theirs });
