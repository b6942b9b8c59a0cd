arguments[0].fs.read({});
