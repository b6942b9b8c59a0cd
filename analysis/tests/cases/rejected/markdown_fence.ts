```typescript
const text = await mcp.filesystem.read_text_file({ path: "a" });
return text.length;
```
