//! PML's own MCP tools, listed alike by the gateway and by `pml stdio`.

use serde_json::{Value, json};

/// What a client's model is told about the server as a whole.
pub const INSTRUCTIONS: &str = "\
PML runs small TypeScript programs that call tools. Find tools with `pml_discover`, then write one \
program that does the whole job and submit it with `pml_execute`: call tools as \
`await mcp.namespace.action({ ... })`, use plain TypeScript between the calls, `return` the result. \
Programs have no network, files or packages of their own; every effect is a tool call. If an answer \
has status `approval_required`, ask the user, then call `pml_continue`.";

/// The `_meta` key under which a forwarded call names its run: `{run_id, call_index}`.
pub const RUN_META: &str = "ai.casys.pml/run";

/// The MCP methods with parameters that both programs answer in both eras. Where
/// these do not fit, the answer is `-32602`; to any unknown method it is `-32601`.
pub const METHODS: &[&str] = &["server/discover", "tools/list", "tools/call"];

/// One of PML's own tools.
#[derive(Debug, Clone, Copy)]
pub struct MetaTool {
    /// The listed name.
    pub name: &'static str,
    /// Other spellings that are accepted.
    pub aliases: &'static [&'static str],
    /// What a model is told about it.
    pub description: &'static str,
    schema: fn() -> Value,
}

impl MetaTool {
    /// Tells whether a client means this tool.
    pub fn is(&self, name: &str) -> bool {
        name == self.name || self.aliases.contains(&name)
    }

    /// Returns the JSON Schema of its arguments.
    pub fn input_schema(&self) -> Value {
        (self.schema)()
    }
}

/// Runs a program.
pub const EXECUTE: MetaTool = MetaTool {
    name: "pml_execute",
    aliases: &["pml:execute", "pml__execute", "execute"],
    description: "\
Runs a TypeScript program that calls tools as `await mcp.namespace.action({ ... })` and returns its \
result. Top-level `await` and `return` work; independent calls run together with `Promise.all`. The \
program is analysed before anything runs, and runs on the server or on the user's machine, \
wherever its tools are. No imports, network or files: every effect is a tool call. Example: \
`const text = await mcp.filesystem.read_text_file({ path: \"data.json\" }); \
const data = await mcp.json.parse({ data: text }); return data.items.length;`",
    schema: execute_schema,
};

/// Finds tools.
pub const DISCOVER: MetaTool = MetaTool {
    name: "pml_discover",
    aliases: &["pml:discover", "pml__discover", "discover"],
    description: "\
Finds tools to call in a program: by what they do (`intent`), by `pattern` (`filesystem:*`) or by \
exact `name` (`json:parse`). Answers with ids, descriptions and input schemas.",
    schema: discover_schema,
};

/// Answers a question of a paused run.
pub const CONTINUE: MetaTool = MetaTool {
    name: "pml_continue",
    aliases: &["pml:continue", "pml__continue", "continue", "continue_workflow"],
    description: "\
Continues or ends a run that answered `approval_required`. Ask the user first; pass their decision \
on unchanged. The run goes on where it stood; nothing is done twice.",
    schema: continue_schema,
};

/// Publishes a program.
pub const CREATE: MetaTool = MetaTool {
    name: "pml_create",
    aliases: &["pml:create", "pml__create", "create"],
    description: "\
Publishes a program under a name, so that programs can call it as `await mcp.namespace.action({ ... })`. \
Publish what has run well: pass its `code`, and the `execution_id` of the run. It begins with a comment \
`/** what it does */`, or has a `description`; `args` are its parameters, `return` its result. A version \
never changes. Example: `{ \"name\": \"reports.weekly\", \"code\": \"/** Counts. */ return args.items.length\" }`.",
    schema: create_schema,
};

/// All of PML's own tools, in the order they are listed.
pub const META_TOOLS: &[MetaTool] = &[EXECUTE, DISCOVER, CREATE, CONTINUE];

fn execute_schema() -> Value {
    json!({
        "type": "object",
        "properties": {
            "code": {
                "type": "string",
                "description": "The TypeScript program, at most 64 KiB.",
            },
            "intent": {
                "type": "string",
                "description": "What the program is for, in a few words.",
            },
            "args": {
                "type": "object",
                "description": "Available in the program as `args`.",
            },
            "options": {
                "type": "object",
                "properties": {
                    "timeout_ms": {
                        "type": "integer",
                        "minimum": 1,
                        "description": "Wall time; can only shorten the limit.",
                    },
                    "dry_run": {
                        "type": "boolean",
                        "description": "Analyse and say where it would run; run nothing.",
                    },
                    "eager": { "type": "boolean" },
                },
                "additionalProperties": false,
            },
            "continue_workflow": continue_schema(),
        },
        "additionalProperties": false,
    })
}

fn continue_schema() -> Value {
    json!({
        "type": "object",
        "properties": {
            "workflow_id": {
                "type": "string",
                "description": "The `workflow_id` of the `approval_required` answer.",
            },
            "approved": { "type": "boolean", "description": "What the user decided." },
            "always": {
                "type": "boolean",
                "description": "Whether the user allows this tool from now on.",
            },
        },
        "required": ["workflow_id", "approved"],
        "additionalProperties": false,
    })
}

fn create_schema() -> Value {
    let visibilities = crate::Visibility::ALL.map(crate::Visibility::as_str);
    json!({
        "type": "object",
        "properties": {
            "name": { "type": "string", "description": "How programs will call it: `namespace.action`." },
            "code": { "type": "string", "description": "The TypeScript program, at most 64 KiB." },
            "execution_id": {
                "type": "string",
                "description": "The `execution_id` of a run that ended with success; the program must be the very one that ran.",
            },
            "version": {
                "type": "string",
                "description": "Three numbers, `1.2.0`. Default: 0.1.0, then the next patch.",
            },
            "visibility": {
                "enum": visibilities,
                "description": "Who may know of it. Default: as before, and first the project.",
            },
            "description": {
                "type": "string",
                "description": "What it does. Default: what its first comment says.",
            },
            "parameters": {
                "type": "object",
                "description": "JSON Schema of its `args`. Default: what its use of them shows.",
            },
        },
        "required": ["name"],
        "additionalProperties": false,
    })
}

fn discover_schema() -> Value {
    json!({
        "type": "object",
        "properties": {
            "intent": { "type": "string", "description": "What the tool should do, in words." },
            "pattern": {
                "type": "string",
                "description": "`namespace:*`, `namespace:action` or `*`.",
            },
            "name": { "type": "string", "description": "One tool's exact id." },
            "limit": { "type": "integer", "minimum": 1, "maximum": 50, "default": 10 },
        },
        "additionalProperties": false,
    })
}
