//! PML's own MCP tools, listed by both the gateway and `pml stdio`.

use serde_json::{Value, json};

/// The server's instructions for a client's model.
pub const INSTRUCTIONS: &str = "\
PML runs small TypeScript programs that call tools. Find tools with `pml_discover`, then write one \
program that does the whole job and submit it with `pml_execute`: call tools as \
`await mcp.namespace.action({ ... })`, use plain TypeScript between the calls, `return` the result. \
Programs have no network, files or packages of their own; every effect is a tool call. If an answer \
has status `approval_required`, ask the user, then call `pml_continue`.";

/// The `_meta` key under which a forwarded call names its run: `{run_id, call_index}`. The gateway makes one call under
/// each name.
pub const RUN_META: &str = "ai.casys.pml/run";

/// Returns `_meta` for the MCP result of an envelope.
pub fn run_meta(envelope: &crate::Envelope) -> Option<serde_json::Map<String, Value>> {
    let run = serde_json::to_value(envelope.meta()?).ok()?;
    Some([(RUN_META.to_owned(), run)].into_iter().collect())
}

/// The MCP methods with parameters that both programs answer in every protocol version. The answer to invalid
/// parameters is `-32602`; to an unknown method, `-32601`.
pub const METHODS: &[&str] = &["server/discover", "tools/list", "tools/call"];

/// One of PML's own tools.
#[derive(Debug, Clone, Copy)]
pub struct MetaTool {
    /// The listed name.
    pub name: &'static str,
    /// The title shown to people.
    pub title: &'static str,
    /// Other spellings that are accepted.
    pub aliases: &'static [&'static str],
    /// The description for a model.
    pub description: &'static str,
    /// What a client may assume about a call.
    pub hints: Hints,
    input: fn() -> Value,
    output: fn() -> Value,
}

/// The effects of a tool's call: MCP's tool annotations.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hints {
    /// Whether it changes nothing.
    pub read_only: bool,
    /// Whether it may overwrite or delete.
    pub destructive: bool,
    /// Whether repeating a call with the same arguments has no further effect.
    pub idempotent: bool,
    /// Whether it reaches beyond PML: files, processes, other servers.
    pub open_world: bool,
}

/// For tools that run programs: a program may call tools with any effect.
const RUNS_PROGRAMS: Hints =
    Hints { read_only: false, destructive: true, idempotent: false, open_world: true };

impl MetaTool {
    /// Returns whether a name denotes this tool.
    pub fn is(&self, name: &str) -> bool {
        name == self.name || self.aliases.contains(&name)
    }

    /// Returns the JSON Schema of its arguments.
    pub fn input_schema(&self) -> Value {
        (self.input)()
    }

    /// Returns the JSON Schema of the `structuredContent` of its answers, failures included.
    pub fn output_schema(&self) -> Value {
        (self.output)()
    }
}

/// Runs a program.
pub const EXECUTE: MetaTool = MetaTool {
    name: "pml_execute",
    title: "Run a program",
    aliases: &["pml:execute", "pml__execute", "execute"],
    description: "\
Runs a TypeScript program that calls tools as `await mcp.namespace.action({ ... })` and returns its \
result. Top-level `await` and `return` work; independent calls run together with `Promise.all`. The \
program is analysed before anything runs, and runs on the server or on the user's machine, \
wherever its tools are. No imports, network or files: every effect is a tool call. Example: \
`const text = await mcp.filesystem.read_text_file({ path: \"data.json\" }); \
const data = await mcp.json.parse({ data: text }); return data.items.length;`",
    hints: RUNS_PROGRAMS,
    input: execute_schema,
    output: envelope_schema,
};

/// Finds tools.
pub const DISCOVER: MetaTool = MetaTool {
    name: "pml_discover",
    title: "Find tools",
    aliases: &["pml:discover", "pml__discover", "discover"],
    description: "\
Finds tools to call in a program: by what they do (`intent`, or several `intents` at once), by `pattern` \
(`filesystem:*`) or by exact `name` (`json:parse`). Returns the matching tools, best first, each with one line, a TypeScript signature and a score from 0 to 1. `include: [\"schemas\"]` adds full descriptions \
and JSON Schemas.",
    hints: Hints { read_only: true, destructive: false, idempotent: true, open_world: false },
    input: discover_schema,
    output: found_schema,
};

/// Answers a question of a paused run.
pub const CONTINUE: MetaTool = MetaTool {
    name: "pml_continue",
    title: "Answer a paused program",
    aliases: &["pml:continue", "pml__continue", "continue", "continue_workflow"],
    description: "\
Continues or ends a run that answered `approval_required`. Ask the user first; pass their decision on unchanged. If the context has `needs_person`, only the user can approve, as `answer_with` says; then this call returns the outcome. The run continues where it stopped; nothing is done twice.",
    hints: RUNS_PROGRAMS,
    input: continue_schema,
    output: envelope_schema,
};

/// Publishes a program.
pub const CREATE: MetaTool = MetaTool {
    name: "pml_create",
    title: "Publish a program",
    aliases: &["pml:create", "pml__create", "create"],
    description: "\
Publishes a program under a name, so that programs can call it as `await mcp.namespace.action({ ... })`. \
Publish a program after a successful run: pass its `code`, and the `execution_id` of the run. It begins with a comment `/** what it does */`, or has a `description`; `args` are its parameters, `return` its result. Versions are immutable. Example: `{ \"name\": \"reports.weekly\", \"code\": \"/** Counts. */ return args.items.length\" }`.",
    hints: Hints { read_only: false, destructive: false, idempotent: false, open_world: false },
    input: create_schema,
    output: envelope_schema,
};

/// All of PML's own tools, in the order they are listed.
pub const META_TOOLS: &[MetaTool] = &[EXECUTE, DISCOVER, CREATE, CONTINUE];

/// The schema of envelopes. Only `status` is required, because clients validate every answer against this schema and
/// most fields are optional.
fn envelope_schema() -> Value {
    json!({
        "type": "object",
        "properties": {
            "status": {
                "enum": ["success", "execute_locally", "error", "approval_required"],
                "description": "The outcome, or what has to happen first.",
            },
            "result": { "description": "With `success`: what the program returned." },
            "error_code": { "type": "string", "description": "With `error`: a stable code." },
            "message": { "type": "string", "description": "With `error`: what went wrong." },
            "hint": { "type": "string", "description": "With `error`: what to do about it." },
            "workflow_id": {
                "type": "string",
                "description": "With `approval_required`: what `pml_continue` takes.",
            },
            "description": {
                "type": "string",
                "description": "With `approval_required`: the question for the user.",
            },
            "execution_id": { "type": "string", "description": "The run's id." },
            "console": { "type": "array", "description": "The program's output." },
            "warnings": {
                "type": "array",
                "items": { "type": "string" },
                "description": "Warnings for the user.",
            },
        },
        "required": ["status"],
    })
}

/// The schema of search results; a failure is an envelope.
fn found_schema() -> Value {
    json!({
        "type": "object",
        "properties": {
            "tools": {
                "type": "array",
                "items": { "type": "object" },
                "description": "The matching tools, best first.",
            },
            "results": {
                "type": "array",
                "items": { "type": "object" },
                "description": "With `intents`: each with its `tools`.",
            },
            "suggestions": {
                "type": "array",
                "items": { "type": "string" },
                "description": "For an unknown `name`: similar names.",
            },
            "missing": { "type": "string", "description": "The sources that could not be searched, and why." },
            "not_started": {
                "type": "array",
                "items": { "type": "string" },
                "description": "The user's servers whose tools are unknown until their first call.",
            },
            "status": { "type": "string", "description": "`error` when the search failed." },
            "error_code": { "type": "string", "description": "With `error`: a stable code." },
            "message": { "type": "string", "description": "With `error`: what went wrong." },
        },
    })
}

fn execute_schema() -> Value {
    // Only `pml` sends `within` and `local_tools`, so models need not know them.
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
                        "description": "The wall-time limit; can only lower the default.",
                    },
                    "dry_run": {
                        "type": "boolean",
                        "description": "Only analyse the program and return where it would run; run nothing.",
                    },
                    // Accepted, but without a description: it has no effect that a model could use.
                    "eager": { "type": "boolean" },
                    "include": {
                        "type": "array",
                        "items": { "enum": crate::Include::ALL },
                        "description": "Additional fields of the answer.",
                    },
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
            "approved": { "type": "boolean", "description": "The user's decision." },
            "always": {
                "type": "boolean",
                "description": "Counts as `approved` alone. Only the user can allow a tool from now on: with `pml approve`, or in the client's own form.",
            },
            "without": {
                "type": "array",
                "items": { "type": "integer", "minimum": 1 },
                "description": "For a list of calls (`approval_type: \"plan\"`): the numbers of those that the user leaves out. They fail when the program makes them.",
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
            "name": { "type": "string", "description": "The name that programs call it by: `namespace.action`." },
            "code": { "type": "string", "description": "The TypeScript program, at most 64 KiB." },
            "execution_id": {
                "type": "string",
                "description": "The `execution_id` of a successful run; the program must be exactly the one that ran.",
            },
            "version": {
                "type": "string",
                "description": "Three numbers, `1.2.0`. Default: 0.1.0, then the next patch.",
            },
            "visibility": {
                "enum": visibilities,
                "description": "Visibility. Default: unchanged; `project` on first publish.",
            },
            "description": {
                "type": "string",
                "description": "The description. Default: the program's first comment.",
            },
            "parameters": {
                "type": "object",
                "description": "JSON Schema of its `args`. Default: derived from the program.",
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
            "intents": {
                "type": "array",
                "items": { "type": "string" },
                "minItems": 1,
                "maxItems": 10,
                "description": "Several intents, each with its own results.",
            },
            "pattern": {
                "type": "string",
                "description": "`namespace:*`, `namespace:action` or `*`.",
            },
            "name": { "type": "string", "description": "One tool's exact id, or a namespace." },
            "filter": {
                "type": "object",
                "properties": {
                    "type": { "enum": ["tool", "capability"] },
                    "routing": { "enum": ["client", "server"] },
                    "read_only": { "type": "boolean" },
                },
                "additionalProperties": false,
            },
            "include": { "type": "array", "items": { "enum": ["schemas"] } },
            "limit": { "type": "integer", "minimum": 1, "maximum": 50, "default": 10 },
        },
        "additionalProperties": false,
    })
}
