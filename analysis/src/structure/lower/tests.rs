//! Snapshots of the core of small programs.

use super::super::core::print;
use super::lower;
use crate::Limits;

fn core(source: &str) -> String {
    let parsed = crate::parse::parse(source, &Limits::default())
        .unwrap_or_else(|found| panic!("{source}: {found:?}"));
    print(&lower(parsed.function().expect("a program is a function")))
}

#[test]
fn a_call_reads_what_it_calls() {
    insta::assert_snapshot!(core("const r = await mcp.a.one({ x: 1 }); return r.y;"));
}

#[test]
fn choices_loops_and_handlers_are_nested() {
    insta::assert_snapshot!(core(
        "let n = 0;
         for (const x of args.list) { if (!x) continue; n += x; }
         while (n > 3) { try { n = JSON.parse('1'); break; } catch (e) { n--; } finally { args.end(); } }"
    ));
}

#[test]
fn patterns_defaults_and_chains_are_spelled_out() {
    insta::assert_snapshot!(core(
        "const { a = 1, b: [c, ...d] } = args; f?.(c?.x.y ?? d); function f() {}"
    ));
}

#[test]
fn classes_are_functions_and_prototypes() {
    insta::assert_snapshot!(core(
        "class A { x = 1; go() { return this.x; } }
         class B extends A { go() { return super.go(); } }
         new B().go();"
    ));
}
