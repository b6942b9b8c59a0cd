//! Injection: module names and comments that could make PML fetch something, and strings that could end their context
//! and become code.

use std::io::ErrorKind;
use std::net::{TcpListener, TcpStream};

use serde_json::{Value, json};

use crate::support::cli::Project;
use crate::support::expect::{calls, failure, success};
use crate::support::http::HttpMcp;
use crate::support::mcp_client::{Era, StdioClient};
use crate::support::server::Server;

/// A listener that must not receive connections.
struct Canary(TcpListener);

impl Canary {
    fn new() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
        listener.set_nonblocking(true).expect("a listener can be made non-blocking");
        Self(listener)
    }

    fn port(&self) -> u16 {
        self.0.local_addr().expect("it has an address").port()
    }

    /// Returns how many connections arrived since the last call. The listener's backlog keeps them.
    fn visits(&self) -> usize {
        let mut visits = 0;
        loop {
            match self.0.accept() {
                Ok(_) => visits += 1,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return visits,
                Err(error) => panic!("{error}"),
            }
        }
    }
}

/// The gateway and `pml`.
struct Sides {
    gateway: HttpMcp,
    pml: StdioClient,
    project: Project,
}

/// A client tool call that makes a program run on this machine, and that is never executed.
const LOCAL: &str = "if (args.never) await mcp.filesystem.read_text_file({ path: '' });";

impl Sides {
    fn new() -> Self {
        let tenant = Server::shared().tenant();
        let project = Project::of(&tenant).allow(&["*"]);
        let pml = project.stdio();
        Self { gateway: HttpMcp::new(&tenant, Era::Stateless), pml, project }
    }

    /// Runs a program on both sides; `~` marks where [`LOCAL`] is inserted.
    fn execute(&mut self, code: &str, args: &Value) -> [Value; 2] {
        let request = json!({ "code": code.replace('~', ""), "args": args });
        let server = self.gateway.execute_request(request);
        let request = json!({ "code": code.replace('~', LOCAL), "args": args });
        [server, self.pml.execute_request(request)]
    }
}

/// AN-09: imports are refused, comments that look like references have no effect, and nothing is fetched.
#[test]
fn programs_cannot_make_pml_fetch_anything() {
    let canary = Canary::new();
    let at = format!("127.0.0.1:{}/canary", canary.port());
    let mut sides = Sides::new();
    sides.project.write("canary.js", "export default 1; export const a = 1;");
    let file = sides.project.workspace().join("canary.js");
    let names = [
        format!("http://{at}.js"),
        format!("https://{at}.js"),
        format!("//{at}.js"),
        format!("data:text/javascript,import(%22http://{at}.js%22)"),
        format!("npm:canary@http://{at}.tgz"),
        "npm:left-pad".into(),
        "jsr:@std/path".into(),
        "node:fs".into(),
        "fs".into(),
        format!("file://{}", file.display()),
        "./canary.js".into(),
    ];
    for name in &names {
        for form in [
            "import canary from '#';~ return 1;",
            "import { a as b } from '#';~ return 1;",
            "import * as canary from '#';~ return 1;",
            "import '#';~ return 1;",
            "import canary from '#' with { type: 'json' };~ return 1;",
            "import type { A } from '#';~ return 1;",
            "import canary = require('#');~ return 1;",
            "export * from '#';~",
            "export * as canary from '#';~",
            "export { a } from '#';~",
            "export { default } from '#';~",
            "~ return await import('#');",
            "~ return await import(`#`);",
            "~ return import('#', { with: { type: 'json' } }).then((made) => made.default);",
            "~ const get = () => import('#'); return 1;",
            "~ return import.meta.resolve('#');",
        ] {
            let code = form.replace('#', name);
            for envelope in sides.execute(&code, &json!({})) {
                failure(&envelope, "UNSUPPORTED_SYNTAX");
            }
        }
        if !name.contains("canary") {
            continue;
        }
        for form in [
            "/// <reference path=\"#\" />\n~ return 1;",
            "/// <reference types=\"#\" />\n~ return 1;",
            "/// <reference lib=\"#\" />\n/// <amd-dependency path=\"#\" />\n~ return 1;",
            "/** @jsxImportSource # */ // @deno-types=\"#\"\n~ return 1;",
            "~ return 1;\n//# sourceMappingURL=#",
            "~ return 1;\n//@ sourceMappingURL=#\n//# sourceURL=#",
            "~ return 1; /*# sourceMappingURL=# */",
            "~ type A = import('#').A; return 1;",
            "~ declare module '#' {} return 1;",
        ] {
            let code = form.replace('#', name);
            for envelope in sides.execute(&code, &json!({})) {
                assert_eq!(success(&envelope), 1, "{code}");
            }
        }
        // Formatting an error looks up its source position, which could follow a source map.
        let code = format!("~ throw new Error('on purpose');\n//# sourceMappingURL={name}");
        for envelope in sides.execute(&code, &json!({})) {
            let message = failure(&envelope, "PROGRAM_FAILED");
            assert!(message.contains("on purpose"), "{envelope:#}");
        }
        // The functions of other engines that load code do not exist.
        for form in [
            "require('#')",
            "importScripts('#')",
            "new Worker('#')",
            "await fetch('#')",
            "new WebSocket('#')",
            "eval('import(\"#\")')",
        ] {
            let code = format!("~ return {};", form.replace('#', name));
            for envelope in sides.execute(&code, &json!({})) {
                assert_eq!(envelope["status"], "error", "{code}: {envelope:#}");
            }
        }
    }
    // The command that reads a file without running it.
    for name in &names {
        let (report, code) = sides.project.analyze(format!("import canary from '{name}';"));
        assert_eq!((&report["diagnostics"][0]["code"], code), (&json!("UNSUPPORTED_SYNTAX"), 2));
        let inert = format!("/// <reference path=\"{name}\" />\n//# sourceMappingURL={name}");
        let (report, code) = sides.project.analyze(inert);
        assert_eq!((&report["diagnostics"], code), (&json!([]), 0));
    }
    assert_eq!(canary.visits(), 0);
    drop(TcpStream::connect(("127.0.0.1", canary.port())).expect("the canary listens"));
    assert_eq!(canary.visits(), 1, "positive control");
}

/// Strings that could end a comment, template, script or line.
const STRINGS: &[&str] = &[
    "`",
    "a`b",
    "*/",
    "/*",
    "//",
    "${1 + 1}",
    "`; mcp.filesystem.write_file({ path: 'made.txt', content: '' }); `",
    "${mcp.filesystem.write_file({ path: 'made.txt', content: '' })}",
    "*/ await mcp.filesystem.write_file({ path: 'made.txt', content: '' }); /*",
    "\" }); await mcp.filesystem.write_file({ path: 'made.txt', content: '' }); ({ \"",
    "' }); await mcp.filesystem.write_file({ path: 'made.txt', content: '' }); ({ '",
    "\u{2028}mcp.filesystem.write_file({ path: 'made.txt', content: '' })\u{2028}",
    "\u{2029}",
    "</script><script>",
    "<!--",
    "-->",
    "]]>",
    "\\",
    "\\\"",
    "\\u0060",
    "\r\n",
    "\0",
    "\u{feff}",
    "\u{202e}",
    "{{x}}",
    "%s%n",
    "$&$1$`",
];

fn no_file_was_made(sides: &Sides) {
    assert!(!sides.project.path("made.txt").exists(), "text of an argument was executed");
}

/// AN-10: a string is passed to a tool and back unchanged.
#[test]
fn strings_pass_through_tools_unchanged() {
    let mut sides = Sides::new();
    for text in STRINGS {
        let literal = Value::from(*text).to_string();
        let expected =
            json!({ "back": { "a": text, *text: [text] }, "keys": ["a", text], "is": text });
        for code in [
            "~ const text = args.text;".to_owned(),
            // JSON is JavaScript.
            format!("~ const text = {literal};"),
        ] {
            let code = format!(
                "{code}
                 const data = JSON.stringify({{ a: text, [text]: [text] }});
                 const back = await mcp.json.parse({{ data }});
                 return {{ back, keys: Object.keys(back), is: back.a }};"
            );
            for envelope in sides.execute(&code, &json!({ "text": text })) {
                assert_eq!(success(&envelope), &expected, "{text:?}");
                let tools: Vec<&str> = calls(&envelope).into_iter().map(|call| call.0).collect();
                assert_eq!(tools, ["json:parse"], "{text:?}");
            }
        }
        // As the name of an unknown argument.
        let code = format!("~ return await mcp.json.parse({{ data: '1', {literal}: {literal} }});");
        for envelope in sides.execute(&code, &json!({})) {
            let tools: Vec<&str> = calls(&envelope).into_iter().map(|call| call.0).collect();
            assert_eq!(tools, ["json:parse"], "{text:?}: {envelope:#}");
        }
    }
    no_file_was_made(&sides);
}

/// AN-10: such a string is refused as the name of a tool before the program runs.
#[test]
fn invalid_tool_names_are_refused_before_the_program_runs() {
    let mut sides = Sides::new();
    for text in STRINGS {
        let literal = Value::from(*text).to_string();
        for code in [
            format!("~ return await mcp[{literal}].parse({{ data: '1' }});"),
            format!("~ return await mcp.json[{literal}]({{ data: '1' }});"),
            format!("~ const {{ {literal}: tool }} = mcp.json; return await tool({{}});"),
            format!("~ const name = {literal}; return await mcp.json[`pa${{name}}`]({{}});"),
        ] {
            for envelope in sides.execute(&code, &json!({})) {
                let message = failure(&envelope, "UNSUPPORTED_SYNTAX");
                assert!(message.contains("cannot be a "), "{text:?}: {envelope:#}");
                assert!(envelope.get("calls").is_none(), "it never ran: {envelope:#}");
            }
        }
    }
    no_file_was_made(&sides);
    let code = "await mcp.filesystem.write_file({ path: 'made.txt', content: '' }); return null;";
    assert_eq!(success(&sides.pml.execute(code)), &Value::Null);
    assert!(sides.project.path("made.txt").exists(), "positive control");
}
