await mcp.a.__proto__({});
await mcp.constructor.toString({});
await mcp.then.toJSON({});
await mcp["0"]["1"]({ __proto__: null, constructor: 1, toString: 2 });
