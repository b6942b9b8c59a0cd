//! Input schemas: every case of `cases/parameters/` has a snapshot of its schema, and
//! required fields are really needed.

use std::path::PathBuf;

use analysis::{Limits, analyze};
use protocol::ToolId;
use serde_json::{Value, json};

fn cases() -> Vec<(PathBuf, String)> {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/cases/parameters");
    let mut paths: Vec<PathBuf> = std::fs::read_dir(folder)
        .expect("the cases are readable")
        .map(|entry| entry.expect("an entry").path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "ts"))
        .collect();
    paths.sort();
    let read = |path: PathBuf| {
        let source = std::fs::read_to_string(&path).expect("a case is readable");
        (path, source)
    };
    paths.into_iter().map(read).collect()
}

/// Schemas of the tools of a shop.
fn shop(id: &ToolId) -> Option<Value> {
    match id.as_str() {
        "shop:search" => Some(json!({
            "type": "object",
            "properties": { "query": { "type": "string" }, "limit": { "type": "integer", "default": 3 } },
            "required": ["query"],
        })),
        "shop:buy" => Some(json!({
            "type": "object", "properties": { "id": { "enum": [1, 2] } }, "required": ["id"],
        })),
        _ => None,
    }
}

fn schema(source: &str) -> Value {
    let analysis = analyze(source, &Limits::default());
    assert!(analysis.can_run(), "{source}: {:?}", analysis.diagnostics);
    let known: Vec<(ToolId, Value)> =
        analysis.tools.iter().filter_map(|id| Some((id.clone(), shop(id)?))).collect();
    analysis
        .input_schema(|id| known.iter().find(|(known, _)| known == id).map(|(_, schema)| schema))
}

#[test]
fn schemas_match_their_snapshots() {
    let mut settings = insta::Settings::clone_current();
    settings.set_prepend_module_to_snapshot(false);
    settings.set_omit_expression(true);
    let cases = cases();
    for (path, source) in &cases {
        let name = path.file_stem().expect("a name").to_string_lossy();
        settings.set_snapshot_path(path.parent().expect("a folder"));
        let shown = serde_json::to_string_pretty(&schema(source)).expect("JSON");
        settings.bind(|| insta::assert_snapshot!(format!("{name}.schema"), shown));
        assert_eq!(schema(source), schema(source), "{name}: the same each time");
    }
    assert!(cases.len() >= 17, "only {} cases", cases.len());
}

/// Pairs of a program that works without a field and one that does not.
#[test]
fn a_field_is_required_if_no_run_succeeds_without_it() {
    for (spares, needs) in [
        ("return args.x ?? 1", "return `${args.x}`"),
        ("return args.x?.y", "return args.x.y"),
        ("if (args.x) return args.x.y; return 0", "const y = args.x.y; if (y) return 1; return 0"),
        ("return args.x && args.x.y", "return args.x.y && args.x"),
        ("const { x = 1 } = args; return x * 2", "const { x } = args; return x * 2"),
        ("const { x: y = 1 } = args; return y * 2", "const { x: y } = args; return y * 2"),
        ("const { x: { y } = {} } = args; return y", "const { x: { y } } = args; return y"),
        ("const x = args.x; return x ? x.y : 0", "const x = args.x; return x.y"),
        ("return args.x === undefined", "return args.x > 1"),
        ("return args.list?.[0]", "return args.list[0]"),
        ("let x = args.x; x ??= 1; return `${x}`", "let x = args.x; return `${x}`"),
        ("return 'x' in args ? args.x.y : 0", "return 'y' in args.x"),
        (
            "switch (args.x) { case 1: return args.x.y } return 0",
            "switch (args.x.y) { case 1: } return 0",
        ),
        ("return [1].map(() => args.x.y)", "return [1, ...args.x]"),
        (
            "try { return args.x.y } catch { return 0 }",
            "const y = args.x.y; try { return y } catch {}",
        ),
        (
            "a: { if (args.y) break a; `${args.x}` } return 1",
            "`${args.x}`; a: { if (args.y) break a; } return 1",
        ),
        ("while (args.x) { return args.x.y } return 1", "while (args.x.y) { return 1 } return 1"),
        ("return (args ?? {}).x ?? 1", "return (args ?? {}).x.y"),
        ("args.x = 1; return `${args.x}`", "args.y = 1; return `${args.x}`"),
    ] {
        let required = |source| {
            let schema = schema(source);
            schema["required"].as_array().is_some_and(|all| !all.is_empty())
        };
        assert!(!required(spares), "{spares}: {}", schema(spares));
        assert!(required(needs), "{needs}: {}", schema(needs));
    }
}

#[test]
fn indirect_access_to_args_leaves_the_schema_open() {
    for source in [
        "return globalThis.args.x",
        "return Object.keys(args)",
        "const a = args; let b = a; b = {}; return b",
        "const { x, ...rest } = args; return rest",
        "return { ...args }",
        "return [args]",
        "return { args }",
        "return args[`${1}`]",
        "for (const [name] of Object.entries(args)) console.log(name); return 1",
        "function args2(args) { return args.y } return args2(args)",
    ] {
        assert_eq!(schema(source)["additionalProperties"], json!(true), "{source}");
    }
    for source in
        ["return 1", "return args.x", "const a = args; return a.x", "if (args) return args.x"]
    {
        assert_eq!(schema(source)["additionalProperties"], json!(false), "{source}");
    }
}
