const five_default = 0;
export default await mcp.math.eval({ expression: `${five_default} + 5` })
