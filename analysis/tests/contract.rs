//! What the other crates rely on: the JSON, the erased program, the sealed job.

use analysis::{Analysis, Code, Limits, analyze, decode, job};
use protocol::{ErrorCode, Routing, RoutingRules};
use serde_json::json;

fn run(source: &str) -> Analysis {
    analyze(source, &Limits::default())
}

#[test]
fn the_json_has_the_documented_shape() {
    let analysis = run(
        "const t = await mcp.filesystem.read_file({ path: args.list[0].p });\nreturn mcp.json.parse({ t, n: 1, x: mcp[t] });",
    );
    let expected = json!({
        "tools": ["filesystem:read_file", "json:parse"],
        "client_tools": ["filesystem:read_file"],
        "unknown_tools": [],
        "routing": "client",
        "dynamic": true,
        "dag": {"tasks": [
            {
                "id": "t1",
                "tool": "filesystem:read_file",
                "depends_on": [],
                "layer": 0,
                "conditional": false,
                "repeats": false,
                "arguments": {"path": {"kind": "parameter", "path": ["list", 0, "p"]}},
            },
            {
                "id": "t2",
                "tool": "json:parse",
                "depends_on": ["t1"],
                "layer": 1,
                "conditional": false,
                "repeats": false,
                "arguments": {
                    "t": {"kind": "reference", "task": "t1", "path": []},
                    "n": {"kind": "literal", "value": 1},
                    "x": {"kind": "expression", "source": "mcp[t]", "depends_on": ["t1"]},
                },
            },
        ]},
        "diagnostics": [{
            "code": "DYNAMIC_NAME",
            "severity": "warning",
            "message": "the tool called here is only known at run time; write its name out, as in `mcp.filesystem.read_file(…)`, and choose between calls with `if`",
            "line": 2,
            "column": 37,
        }],
    });
    // The text is compared, so that the order of the fields is checked as well.
    let found = analysis.to_json(&RoutingRules::shipped());
    assert_eq!(
        serde_json::to_string_pretty(&found).unwrap(),
        serde_json::to_string_pretty(&expected).unwrap()
    );
}

/// AN-12: one client tool, or one call that the analysis does not know, keeps a program off the server.
#[test]
fn one_client_tool_or_unknown_call_routes_to_the_client() {
    let rules = RoutingRules::shipped();
    for (source, routing, client) in [
        ("return 1", Routing::Server, 0),
        ("mcp.json.parse({}); mcp.math.eval({})", Routing::Server, 0),
        ("mcp.json.parse({}); mcp.filesystem.read_file({})", Routing::Client, 1),
        ("if (mcp.filesystem.read_file({})) mcp.json.parse({})", Routing::Client, 1),
        ("mcp.json[args.x]({})", Routing::Client, 0),
        ("mcp.nobody.knows({})", Routing::Client, 1),
    ] {
        let analysis = run(source);
        assert_eq!(analysis.routing(&rules), routing, "{source}");
        assert_eq!(analysis.client_tools(&rules).len(), client, "{source}");
    }
}

/// Names keep their positions, so that the positions of errors refer to the source.
#[test]
fn erasing_types_keeps_every_position() {
    let source = r#"#!/usr/bin/env pml
interface Item<T> { id: string; list: T[] }
type Pair = [string, number];
declare const mcp: any;
const größe: Record<string, Item<Pair>> = {} as any;
async function load<T extends object>(path: string, options?: { deep?: boolean }): Promise<T> {
  const text = (await mcp.filesystem.read_file({ path })) as string;
  return JSON.parse(text!) satisfies object as unknown as T;
}
abstract class Store<T> implements Disposable {
  private readonly items: Map<string, T> = new Map<string, T>();
  declare ghost: number;
  public static make<U>(this: void): Store<U> | undefined { return undefined; }
  get size(): number { return this.items.size; }
}
const generic = <T,>(value: T): T => value;
let later!: number;
function over(a: string): void;
function over(a: any): void {}
for (const [name, value] of Object.entries(größe as object) as [string, any][]) { over(name); generic<number>(value); }
/* 日本語 */ return { later, made: Store.make<string>() };
"#;
    let analysis = run(source);
    assert!(analysis.can_run(), "{:?}", analysis.first_error());
    let program = &analysis.program;
    assert_eq!(program.lines().count(), source.lines().count());
    for gone in ["interface", "Promise<T>", "declare", "satisfies", "private", "abstract", "#!"] {
        assert!(!program.contains(gone), "{gone} is left in\n{program}");
    }
    let mut checked = 0;
    for (before, after) in source.lines().zip(program.lines()) {
        for name in
            ["größe", "load", "path", "text", "items", "generic", "value", "later", "name", "made"]
        {
            for (at, _) in after.match_indices(name) {
                let column = after[..at].chars().count();
                let same: String = before.chars().skip(column).take(name.chars().count()).collect();
                assert_eq!(same, name, "column {column} of\n{before}\n{after}");
                checked += 1;
            }
        }
    }
    assert!(checked > 15, "only {checked} names were compared");
}

#[test]
fn unwrapping_an_arrow_function_keeps_every_position() {
    let analysis = run("// first\nasync () => {\n  const a: number = 1;\n  return a;\n};\n");
    assert_eq!(
        analysis.program,
        "// first\n             \n  const a         = 1;\n  return a;\n  \n"
    );
    let analysis = run("async () => mcp.a.b({ n: 1 })");
    assert_eq!(analysis.program, "return (    mcp.a.b({ n: 1 }))");
    // `return (` replaces as many plain characters of the arrow's head, where there are enough.
    let analysis = run("(/* \u{85} */\n /* enough */) => 1");
    assert_eq!(analysis.program, "    \u{a0}   \nreturn (          1)");
    assert!(!run("(/*\u{85}*/)=>1").can_run());
}

#[test]
fn errors_carry_their_numbered_code() {
    for (source, code) in [
        ("const = 1", ErrorCode::ParseError),
        ("enum A {}", ErrorCode::UnsupportedSyntax),
        ("mcp.a['b c']()", ErrorCode::UnsupportedSyntax),
        (&"(".repeat(1_000), ErrorCode::TooComplex),
        (&" ".repeat(70_000), ErrorCode::SourceTooLarge),
    ] {
        assert_eq!(run(source).first_error().unwrap().error_code(), code);
    }
}

#[test]
fn the_job_returns_an_empty_answer_for_invalid_requests() {
    for input in [&b""[..], b"{}", b"[1,2]", b"\xff\xfe", b"{\"source\":7}"] {
        decode(&job(input)).unwrap_err();
    }
    let answer = decode(&job(b"{\"source\":\"return 1\"}")).unwrap();
    assert!(answer.can_run());
}

/// AN-05 and AN-11: escapes spell the same name, and names such as `__proto__` are ordinary.
#[test]
fn equivalent_spellings_are_one_name_and_invalid_names_are_refused() {
    let tools = |source: &str| {
        let analysis = run(source);
        analysis.tools.iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    for source in ["m\\u0063p.fs.read()", "mcp.f\\u{73}.read()", "mcp['f\\x73']['re' + 'ad']()"] {
        assert_eq!(tools(source), ["fs:read"], "{source}");
    }
    for name in ["__proto__", "constructor", "toString", "then", "toJSON", "0", "hasOwnProperty"] {
        assert_eq!(tools(&format!("mcp.a[{name:?}]()")), [format!("a:{name}")]);
        let arguments = run(&format!("mcp.a.b({{ [{name:?}]: 1 }})"));
        assert_eq!(arguments.dag.tasks[0].arguments.keys().collect::<Vec<_>>(), [name]);
    }
    for source in
        ["mcp.a['']()", "mcp.a['\u{202e}']()", "mcp['a\u{0}'].b()", "mсp.a.b()", "mcp.ａ.b()"]
    {
        assert!(!run(source).can_run(), "{source}");
    }
    assert_eq!(run("\u{feff}mcp.a.b()").dag.tasks[0].id, "t1");
    assert_eq!(run("\u{feff}\u{feff}mcp.a.b()").program, "return await (mcp.a.b())");
    for newline in ["\u{2028}", "\u{2029}"] {
        assert_eq!(tools(&format!("// x{newline}mcp.a.b()")), ["a:b"]);
        assert_eq!(tools(&format!("const s = 'x{newline}'; mcp.a.b({{ s }})")), ["a:b"]);
    }
}

#[test]
fn a_refused_program_has_no_erased_text() {
    for source in ["import 'x'", "const = 1", "mcp.a['b c']()"] {
        let analysis = run(source);
        assert!(!analysis.can_run() && analysis.program.is_empty());
        assert!(analysis.diagnostics.iter().all(|found| found.code != Code::TooComplex));
    }
}

#[test]
fn capabilities_are_marked_by_the_caller() {
    let mut structure = run("mcp.a.tool({}); mcp.a.capability({});").structure;
    structure.mark_capabilities(|tool| tool.action() == "capability");
    let kinds: Vec<&str> = structure
        .nodes
        .iter()
        .map(|node| match node.kind {
            analysis::NodeKind::Task(_) => "task",
            analysis::NodeKind::Capability(_) => "capability",
            _ => "other",
        })
        .collect();
    assert_eq!(kinds, ["task", "capability"]);
    assert_eq!(structure.tasks().count(), 2);
}

/// A result that an iteration passes to the next one is data, too.
#[test]
fn data_from_includes_earlier_iterations() {
    let analysis = run(
        "let last; for (const p of args.list) { const r = await mcp.a.b({ p, last }); if (r.ok) last = await mcp.a.c({ p, r }); }",
    );
    let tasks: Vec<_> = analysis.structure.tasks().collect();
    assert_eq!(
        (&tasks[0].depends_on, &tasks[0].data_from),
        (&vec![], &vec!["t1".into(), "t2".into()])
    );
    assert_eq!(
        (&tasks[1].depends_on, &tasks[1].data_from),
        (&vec!["t1".into()], &vec!["t1".into()])
    );
    assert!(!analysis.to_json(&RoutingRules::shipped()).to_string().contains("data_from"));
}

#[test]
fn large_object_graphs_are_followed() {
    let nodes = |count: usize| {
        let mut source = String::new();
        for node in 0..count {
            source += &format!("const n{node} = {{ v: {node} }};\n");
        }
        for node in 1..count {
            let before = node - 1;
            source += &format!("n{before}.next = n{node}; n{node}.prev = n{before};\n");
        }
        for node in 0..count {
            source += &format!("n{node}.v = args.x;\n");
        }
        source + "await mcp.a.use({ v: n0.v, last: n0.next.next });"
    };
    let list = run(&nodes(60));
    assert!(list.can_run(), "{:?}", list.first_error());
    assert!(list.structure.tasks().all(|task| task.from_args));
}
