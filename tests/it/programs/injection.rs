//! Text that tries to become code, or to be fetched: names of modules, comments
//! that tools follow, strings that end what they stand in.

use std::io::ErrorKind;
use std::net::{TcpListener, TcpStream};

use serde_json::{Value, json};

use crate::support::cli::Project;
use crate::support::expect::{calls, failure, success};
use crate::support::http::HttpMcp;
use crate::support::mcp_client::{Era, StdioClient};
use crate::support::server::Server;

/// A listener to whom nobody should come.
struct Canary(TcpListener);

impl Canary {
    fn new() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
        listener.set_nonblocking(true).expect("a listener can be told not to wait");
        Self(listener)
    }

    fn port(&self) -> u16 {
        self.0.local_addr().expect("it has an address").port()
    }

    /// Returns how many came since the last time; whoever has connected stands in
    /// the queue of the listener.
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

/// Both places where programs run.
struct Sides {
    gateway: HttpMcp,
    pml: StdioClient,
    project: Project,
}

/// A call that makes a program one of this machine, and is never made.
const LOCAL: &str = "if (args.never) await mcp.filesystem.read_text_file({ path: '' });";

impl Sides {
    fn new() -> Self {
        let tenant = Server::shared().tenant();
        let project = Project::of(&tenant).allow(&["*"]);
        let pml = project.stdio();
        Self { gateway: HttpMcp::new(&tenant, Era::Stateless), pml, project }
    }

    /// Runs a program in both places; `~` stands for where the call of [`LOCAL`] may be.
    fn execute(&mut self, code: &str, args: &Value) -> [Value; 2] {
        let request = json!({ "code": code.replace('~', ""), "args": args });
        let server = self.gateway.execute_request(request);
        let request = json!({ "code": code.replace('~', LOCAL), "args": args });
        [server, self.pml.execute_request(request)]
    }
}

/// AN-09: what names a module is refused, what only looks so does nothing, and
/// nobody goes where it points.
#[test]
fn nothing_is_fetched_for_a_program() {
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
        // Whoever shows an error looks where it comes from.
        let code = format!("~ throw new Error('on purpose');\n//# sourceMappingURL={name}");
        for envelope in sides.execute(&code, &json!({})) {
            let told = failure(&envelope, "PROGRAM_FAILED");
            assert!(told.contains("on purpose"), "{envelope:#}");
        }
        // What other engines have to load code is not there.
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
    // The commands that look at a file and do not run it.
    for name in &names {
        let (report, code) = sides.project.analyze(format!("import canary from '{name}';"));
        assert_eq!((&report["diagnostics"][0]["code"], code), (&json!("UNSUPPORTED_SYNTAX"), 2));
        let inert = format!("/// <reference path=\"{name}\" />\n//# sourceMappingURL={name}");
        let (report, code) = sides.project.analyze(inert);
        assert_eq!((&report["diagnostics"], code), (&json!([]), 0));
    }
    assert_eq!(canary.visits(), 0);
    drop(TcpStream::connect(("127.0.0.1", canary.port())).expect("the canary listens"));
    assert_eq!(canary.visits(), 1, "a visit is seen");
}

/// Strings that end a comment, a template, a script or a line, if they stand in one.
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

/// AN-10: a string reaches a tool, and comes back from it, byte for byte.
#[test]
fn strings_stay_what_they_are() {
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
        // As the name of an argument that no tool has.
        let code = format!("~ return await mcp.json.parse({{ data: '1', {literal}: {literal} }});");
        for envelope in sides.execute(&code, &json!({})) {
            let tools: Vec<&str> = calls(&envelope).into_iter().map(|call| call.0).collect();
            assert_eq!(tools, ["json:parse"], "{text:?}: {envelope:#}");
        }
    }
    no_file_was_made(&sides);
}

/// AN-10: no such string is the name of a tool, and none is looked for.
#[test]
fn strings_are_no_names_of_tools() {
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
                let told = failure(&envelope, "UNSUPPORTED_SYNTAX");
                assert!(told.contains("cannot be a "), "{text:?}: {envelope:#}");
                assert!(envelope.get("calls").is_none(), "it never ran: {envelope:#}");
            }
        }
    }
    no_file_was_made(&sides);
    let code = "await mcp.filesystem.write_file({ path: 'made.txt', content: '' }); return null;";
    assert_eq!(success(&sides.pml.execute(code)), &Value::Null);
    assert!(sides.project.path("made.txt").exists(), "such a call makes the file");
}
