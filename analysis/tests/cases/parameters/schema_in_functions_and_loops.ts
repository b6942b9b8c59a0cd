const twice = () => `${args.inner}`;
for (const file of args.files) console.log(file, `${args.each}`);
try { console.log(`${args.tried}`) } catch {}
return twice;
