#!/usr/bin/env python3
"""Rewrites the catalog's stdio entries from the running servers themselves.

Needs Node with npx and Python with the package `uv` (for uvx). Each server is
started as its entry says, asked for its tools, and stopped. What is not from
the server (description, pins, warnings, what only reads) stands in SERVERS.

    python3 registry/catalog/regenerate.py [NAMESPACE ...]
"""

import json
import pathlib
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).parent
NPM = "2026.8.31"

SERVERS = {
    "filesystem": {
        "description": "Reads and writes files beneath the workspace.",
        "install": ["npx", "-y", f"@modelcontextprotocol/server-filesystem@{NPM}", "${workspace}"],
        "warnings": ["`pml` answers these tools itself; the server is not started."],
        "read_only": ["read_", "list_", "directory_tree", "search_files", "get_file_info"],
    },
    "memory": {
        "description": "A knowledge graph that is kept in a file between conversations.",
        "install": ["npx", "-y", f"@modelcontextprotocol/server-memory@{NPM}"],
        "env": {"MEMORY_FILE_PATH": "${home}/memory.jsonl"},
        "read_only": ["read_graph", "search_nodes", "open_nodes"],
    },
    "sequential-thinking": {
        "description": "Keeps track of a chain of thoughts that can be revised and branched.",
        "install": ["npx", "-y", f"@modelcontextprotocol/server-sequential-thinking@{NPM}"],
    },
    "everything": {
        "description": "The reference server that exercises every feature of MCP; for tests.",
        "install": ["npx", "-y", f"@modelcontextprotocol/server-everything@{NPM}"],
    },
    "git": {
        "description": "Reads and changes git repositories on the user's machine.",
        "install": ["uvx", "mcp-server-git==2026.10.19"],
        "warnings": ["`pml` answers these tools itself; the server is not started."],
        "read_only": ["git_status", "git_diff", "git_log", "git_show", "git_branch"],
    },
    "time": {
        "description": "The current time, and conversion between time zones.",
        "install": ["uvx", "mcp-server-time==2026.10.19"],
        "read_only": ["get_current_time", "convert_time"],
    },
    "fetch": {
        "description": "Fetches a web page and returns it as Markdown.",
        "install": ["uvx", "mcp-server-fetch==2026.10.24"],
        "network": ["*"],
        "warnings": ["Reaches every public host, at ports 80 and 443."],
    },
}


def tools_of(command, workspace):
    """Starts a server, asks for its tools as a 2025-11-25 client, stops it."""
    command = [part.replace("${workspace}", workspace) for part in command]
    server = subprocess.Popen(
        command, cwd=workspace, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )

    def send(message):
        server.stdin.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
        server.stdin.flush()

    def answer(wanted):
        for line in server.stdout:
            message = json.loads(line)
            if message.get("id") == wanted and "method" not in message:
                return message["result"]
        raise SystemExit(f"{command}: ended without an answer")

    hello = {"protocolVersion": "2025-11-25", "capabilities": {}}
    hello["clientInfo"] = {"name": "catalog", "version": "1"}
    send({"id": 1, "method": "initialize", "params": hello})
    answer(1)
    send({"method": "notifications/initialized"})
    send({"id": 2, "method": "tools/list", "params": {}})
    tools = answer(2)["tools"]
    server.stdin.close()
    server.kill()
    server.wait()
    return tools


def entry(namespace, server):
    """Returns the catalog entry of one server."""
    command, *args = server["install"]
    with tempfile.TemporaryDirectory() as workspace:
        described = tools_of(server["install"], workspace)
    tools = []
    for tool in described:
        kept = {key: tool[key] for key in ("name", "description", "inputSchema") if key in tool}
        for key in ("outputSchema", "annotations"):
            if key in tool:
                kept[key] = tool[key]
        if any(tool["name"].startswith(name) for name in server.get("read_only", [])):
            kept["read_only"] = True
        tools.append(kept)
    needs = {key: server[key] for key in ("env", "network") if key in server}
    return {
        "namespace": namespace,
        "kind": "stdio",
        "description": server["description"],
        "install": {"command": command, "args": args, "env_required": [], **needs},
        "routing": "client",
        "warnings": server.get("warnings", []),
        "tools": tools,
    }


def main():
    for namespace in sys.argv[1:] or SERVERS:
        text = json.dumps(entry(namespace, SERVERS[namespace]), indent=2, ensure_ascii=False)
        (HERE / f"{namespace}.json").write_text(text + "\n")
        print(namespace)


main()
