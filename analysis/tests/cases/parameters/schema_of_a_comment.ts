/**
 * Finds something.
 * @param {string} query - What to find.
 * @param {number} [limit=5] How many.
 * @param {string[]} args.tags
 */
return mcp.shop.find({ query: args.query, limit: args.limit, tags: args.tags });
