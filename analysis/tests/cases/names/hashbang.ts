#!/usr/bin/env pml
await mcp.a.b({});
