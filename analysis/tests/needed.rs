//! The tools without which no run of a program can succeed.

use analysis::{Limits, analyze};

const CASES: &[(&str, &[&str])] = &[
    ("await mcp.a.one({}); return await mcp.a.two({})", &["a:one", "a:two"]),
    ("const call = async () => mcp.a.one({}); return await call()", &["a:one"]),
    ("return await Promise.all([mcp.a.one({}), mcp.a.two({})])", &["a:one", "a:two"]),
    // A run may skip the call.
    ("if (args.x) await mcp.a.one({}); return await mcp.a.two({})", &["a:two"]),
    ("for (const x of args.all) await mcp.a.one({ x })", &[]),
    ("const x = await mcp.a.one({}); return x ? await mcp.a.two({}) : 0", &["a:one"]),
    // The failure may be handled.
    ("try { return await mcp.a.one({}) } catch { return 0 }", &[]),
    ("try { await mcp.a.one({}) } finally { return 0 }", &[]),
    ("return await mcp.a.one({}).catch(() => 0)", &[]),
    ("return await mcp.a.one({}).then((x) => x, () => 0)", &[]),
    ("return await Promise.allSettled([mcp.a.one({})])", &[]),
    ("return await Promise.any([mcp.a.one({}), mcp.a.two({})])", &[]),
    ("return await Promise['race']([mcp.a.one({}), 1])", &[]),
    // Nor is anything known of a program that computes the names of its tools.
    ("await mcp.a.one({}); return await mcp.a[args.name]({})", &[]),
];

#[test]
fn needed_tools_are_found() {
    for (source, expected) in CASES {
        let analysis = analyze(source, &Limits::default());
        assert!(analysis.can_run(), "{source}");
        let needed: Vec<String> = analysis.needed_tools().map(ToString::to_string).collect();
        assert_eq!(needed, *expected, "{source}");
    }
}
