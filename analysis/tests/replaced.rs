//! Names that choose a tool, and code that replaces them.

use analysis::{Limits, analyze};

fn tools_of(source: &str) -> (Vec<String>, bool) {
    let analysis = analyze(source, &Limits::default());
    assert!(analysis.can_run(), "{source}: {:?}", analysis.first_error());
    (analysis.tools.iter().map(ToString::to_string).collect(), analysis.dynamic)
}

/// Programs that call `a:b`, although their text suggests `a:x`.
const REPLACED: &[&str] = &[
    // An awaited object may have a `then`.
    "mcp.a[(await { k: 'x', then(r) { r({ k: 'b' }) } }).k]({})",
    "const f = async () => ({ k: 'x', then(r) { r({ k: 'b' }) } }); const { k } = await f(); mcp.a[k]({})",
    "const [{ k }] = await Promise.all([{ k: 'x', then(r) { r({ k: 'b' }) } }]); mcp.a[k]({})",
    "for await (const { k } of [{ k: 'x', then(r) { r({ k: 'b' }) } }]) mcp.a[k]({})",
    "const p = (async () => 'x')(); Object.assign(p, { then(r) { r('b') } }); const f = async () => p; mcp.a[await f()]({})",
    // Field initializers run when an object is created; static ones run after all computed keys.
    "let k = 'x'; class A { f = mcp.a[k]({}) } k = 'b'; new A()",
    "let k = 'x'; class A { #f = mcp.a[k]({}) } k = 'b'; new A()",
    "let k = 'x'; class A { static f = mcp.a[k]({}); static [(k = 'b')] = 1 }",
    "let k = 'x'; class A { static { mcp.a[k]({}) } static [(k = 'b')] = 1 }",
    // A built-in is replaced.
    "Promise = { all: async () => ['b'] }; const [k] = await Promise.all(['x']); mcp.a[k]({})",
    "({ Promise } = { Promise: { all: () => ['b'] } }); mcp.a[Promise.all(['x'])[0]]({})",
    "Object.getPrototypeOf([])[0] = 'b'; mcp.a[[,][0] ?? 'x']({})",
    "Object.getPrototypeOf([])[0] = 'b'; const [k = 'x'] = [,]; mcp.a[k]({})",
    "Object.getPrototypeOf([])[7] = 'b'; mcp.a[['x'][7] ?? 'x']({})",
    "Object.getPrototypeOf([]).k = 'b'; mcp.a[['x'][args.n]]({})",
    "Object.getPrototypeOf([])[Symbol.asyncIterator] = async function* () { yield 'b' }; for await (const k of ['x']) mcp.a[k]({})",
    // A method changes its receiver.
    "mcp.a[{ k: 'x', f() { this.k = 'b'; return this } }.f().k]({})",
    "({ k: 'x', go() { this.k = 'b'; mcp.a[this.k]({}) } }).go()",
    "mcp.a[{ f() { return 'x' }, g() { this.f = () => 'b'; return this } }.g().f()]({})",
    // A function in a field is replaced by another.
    "const o = { f: () => 'x' }; const p = o; p.f = () => 'b'; mcp.a[o.f()]({})",
    "const o = { n: { f: () => 'x' } }; const q = o.n; q.f = () => 'b'; mcp.a[o.n.f()]({})",
    "const l = [() => 'x']; const g = (m) => { m[0] = () => 'b' }; g(l); const [f] = l; mcp.a[f()]({})",
    "class A { constructor() { this.m = () => 'b' } m() { return 'x' } } mcp.a[new A().m()]({})",
    "class A { constructor() { return { m: () => 'b' } } m() { return 'x' } } mcp.a[new A().m()]({})",
    "class A { m = () => 'b'; m() { return 'x' } } mcp.a[new A().m()]({})",
    "class A { ['m'] = () => 'b'; m() { return 'x' } } mcp.a[new A().m()]({})",
    "class A { static m() { return 'x' } static m = () => 'b' } mcp.a[A.m()]({})",
    "class A { m() { return 'x' } get m() { return () => 'b' } } mcp.a[new A().m()]({})",
    "class A { m() { return 'x' } [args.n ?? 'm']() { return 'b' } } mcp.a[new A().m()]({})",
    "class A { static m() { return 'x' } static [args.n ?? 'm']() { return 'b' } } mcp.a[A.m()]({})",
    "class A { m() { return 'x' } } const { prototype: p } = A; p.m = () => 'b'; mcp.a[new A().m()]({})",
    "class A { m() { return 'x' } } Object.getPrototypeOf(new A()).m = () => 'b'; mcp.a[new A().m()]({})",
    // A list or table is changed through an alias, or by code that it is passed to.
    "const l = ['x']; const m = l; m[0] = 'b'; for (const k of l) mcp.a[k]({})",
    "const l = ['x']; const m = [l]; m[0][0] = 'b'; for (const k of l) mcp.a[k]({})",
    "const l = ['x']; const o = { l }; o.l[0] = 'b'; for (const k of l) mcp.a[k]({})",
    "let m; const l = m = ['x']; m[0] = 'b'; for (const k of l) mcp.a[k]({})",
    "const l = ['x']; l.map((v, i, all) => { all[0] = 'b' }); for (const k of l) mcp.a[k]({})",
    "const l = ['x']; l.map(function () { arguments[2][0] = 'b' }); for (const k of l) mcp.a[k]({})",
    "const l = ['x']; l.forEach((...all) => { all[2][0] = 'b' }); for (const k of l) mcp.a[k]({})",
    "const l = ['x']; l.reduce((a, v, i, all) => { all[0] = 'b' }, 0); mcp.a[l[0]]({})",
    "const l = ['x']; const f = () => l; f()[0] = 'b'; mcp.a[l[0]]({})",
    "const l = ['x']; ((m) => { m[0] = 'b' })(l); mcp.a[l[0]]({})",
    "const l = ['x']; [l[0]] = ['b']; mcp.a[l[0]]({})",
    "const l = ['x']; for (l[0] of ['b']); mcp.a[l[0]]({})",
    "const l = ['x']; l.fill('b'); mcp.a[l[0]]({})",
    "const l = ['x']; const { length } = l; l.push('b'); for (const k of l) mcp.a[k]({})",
    "const l = ['x']; l['pu' + 'sh']('b'); for (const k of l) mcp.a[k]({})",
    "const l = ['x']; const g = () => l.splice(0, 1, 'b'); g(); for (const k of l) mcp.a[k]({})",
    "let l = ['x']; const m = ['x']; if (args.n) l = m; m[0] = 'b'; l = m; mcp.a[l[0]]({})",
    "const t = { k: 'x' }; t.k = 'b'; mcp.a[t.k]({})",
    "const t = { k: 'x' }; t['k'] = 'b'; mcp.a[t.k]({})",
    "const t = { k: 'x' }; Object.assign(t, { k: 'b' }); mcp.a[t.k]({})",
    "const t = { k: 'x' }; const u = Object(t); u.k = 'b'; mcp.a[t.k]({})",
    "const t = { k: 'x' }; delete t.k; Object.prototype.k = 'b'; mcp.a[t.k]({})",
    "const t = { k: 'x' }; Reflect.set(t, 'k', 'b'); for (const k of Object.values(t)) mcp.a[k]({})",
    "const t = { x: 1 }; t.b = 1; for (const k of Object.keys(t)) mcp.a[k]({})",
    "const t = { 2: 'x', 1: 'b' }; mcp.a[Object.values(t)[0]]({})",
    "const t = { n: { k: 'x' } }; const { n } = t; n.k = 'b'; mcp.a[t.n.k]({})",
    "let t = { k: 'x' }; const set = (v) => { t = v }; set({ k: 'b' }); mcp.a[t.k]({})",
    // Skipped code assigns nothing; all tests of a switch run before its default.
    "let k = 'b', o; o?.[(k = 'x')]; mcp.a[k]({})",
    "let k = 'b', o; o?.f(k = 'x'); mcp.a[k]({})",
    "let k = 'b', f; f?.(k = 'x'); mcp.a[k]({})",
    "let k = 'b', o; o?.map(k = 'x'); mcp.a[k]({})",
    "let k = 'b', o; o?.p.f((k = 'x')); mcp.a[k]({})",
    "let k = 'b', o; o?.p[(k = 'x')].q; mcp.a[k]({})",
    "let k = 'b', o; delete o?.[(k = 'x')]; mcp.a[k]({})",
    "let k = 'x'; switch (3) { default: mcp.a[k]({}); case (k = 'b', 1): }",
    "let k = 'x'; switch (3) { default: mcp.a[k]({}); break; case 1: case (k = 'b', 2): }",
    // The left side of `=` is evaluated before the right one.
    "let k = 'b'; mcp.a[k]({}).y = k = 'x'",
    "let k = 'b'; (mcp.a[k]({})).y += k = 'x'",
    "let k = 'b'; const o = {}; o[mcp.a[k]({})] ??= k = 'x'",
];

#[test]
fn names_that_may_have_been_replaced_choose_no_tool() {
    for source in REPLACED {
        let (tools, dynamic) = tools_of(source);
        assert!(dynamic || tools.contains(&"a:b".to_owned()), "{source}: {tools:?}");
    }
}

/// Numbers whose formatting is not implemented make the program dynamic.
#[test]
fn numbers_in_names_are_formatted_like_in_the_engine() {
    for source in ["mcp.a['b' + 1e-7]({})", "mcp.a[`b${0.5}`]({})", "mcp.a[`b${1e21}`]({})"] {
        let (tools, dynamic) = tools_of(source);
        assert!(dynamic && tools.is_empty(), "{source}: {tools:?}");
    }
    assert_eq!(tools_of("mcp.a['b' + 10]({})"), (vec!["a:b10".to_owned()], false));
}

/// If two parts of a name are chosen separately, the analysis does not know which go together.
#[test]
fn independent_choices_of_names_are_not_combined() {
    for source in [
        "let a = 'low', b = 'er'; if (args.x) { a = 'up'; b = 'per' } mcp.string[a + b]({})",
        "let n = 'json', t = 'parse'; if (args.x) { n = 'string'; t = 'join' } mcp[n][t]({})",
        "let t = 'x'; const c = (n) => { mcp[n][t]({}); t = n }; for (const n of ['a', 'b']) c(n)",
    ] {
        let (tools, dynamic) = tools_of(source);
        assert!(dynamic && tools.is_empty(), "{source}: {tools:?}");
    }
    for (source, expected) in [
        (
            "const c = (a) => (b) => mcp.string[a + b]({}); c('low')('er'); c('up')('per')",
            ["string:lower", "string:upper"],
        ),
        (
            "const c = (a, b) => mcp.string[`${a}${b}`]({}); c('low', 'er'); c('up', 'per')",
            ["string:lower", "string:upper"],
        ),
        (
            "const c = (n, t) => mcp[n][t]({}); c('json', 'parse'); c('string', 'join')",
            ["json:parse", "string:join"],
        ),
        (
            "const c = (a) => mcp.string[a + 'er']({}); c('low'); c('upp')",
            ["string:lower", "string:upper"],
        ),
        ("const c = (n) => mcp[n].end({}); c('json'); c('string')", ["json:end", "string:end"]),
        ("const c = (t) => mcp.json[t]({}); c('get'); c('set')", ["json:get", "json:set"]),
    ] {
        let (tools, dynamic) = tools_of(source);
        assert!(!dynamic, "{source}");
        assert_eq!(tools, expected, "{source}");
    }
}

/// Including defaults.
#[test]
fn constant_names_choose_their_tools() {
    for (source, expected) in [
        ("const f = (k, j = 'b') => mcp.a[j]({ k }); f(1, 'c'); f(2)", &["a:b", "a:c"][..]),
        ("let k; mcp.a[k ?? 'b']({})", &["a:b"]),
        ("let k; if (args.x) k = 'c'; mcp.a[k ?? 'b']({})", &["a:b", "a:c"]),
        ("for (const { k } of [{ k: 'b' }, { k: 'c' }]) await mcp.a[k]({})", &["a:b", "a:c"]),
        ("await Promise.all(['b', 'c'].map((k) => mcp.a[k]({})))", &["a:b", "a:c"]),
        ("const [k, j = 'c'] = ['b']; mcp.a[k]({}); mcp.a[j]({})", &["a:b", "a:c"]),
        ("class A { go = () => mcp.a.b({}); #n = 1 } new A().go()", &["a:b"]),
        (
            "const l = ['b', 'c']; for (const k of l) mcp.a[k]({}); l.join(); return [...l]",
            &["a:b", "a:c"],
        ),
        (
            "const l = ['b'] as const; const o = {}; o.x = 1; await Promise.all(l.map((k, i) => mcp.a[k]({ i })))",
            &["a:b"],
        ),
        (
            "const t = { one: 'b', two: 'c' }; const o = {}; o.x = 1; mcp.a[t.one]({}); mcp.a[t['two']]({})",
            &["a:b", "a:c"],
        ),
        (
            "const t = { b: 1, c: 2 }; for (const k of Object.keys(t)) mcp.a[k]({ n: t[k] })",
            &["a:b", "a:c"],
        ),
        (
            "const t = { x: 'b', y: 'c' }; for (const [, k] of Object.entries(t)) mcp.a[k]({})",
            &["a:b", "a:c"],
        ),
        ("class A { a = mcp.a; go() { return this.a.b({}) } } new A().go()", &["a:b"]),
        ("class A { #a = mcp.a; go() { return this.#a.b({}) } } new A().go()", &["a:b"]),
        (
            "class A { constructor(a) { this.a = a } go() { return this.a.b({}) } } new A(mcp.a).go()",
            &["a:b"],
        ),
        ("class A { t = { one: mcp.a.b }; go() { return this.t.one({}) } } new A().go()", &["a:b"]),
        ("class A { static a = mcp.a; static go() { return A.a.b({}) } } A.go()", &["a:b"]),
        ("class A { a = mcp.a } const x = new A(); const y = x; x.n = 1; y.a.b({})", &["a:b"]),
    ] {
        let (tools, dynamic) = tools_of(source);
        assert!(!dynamic, "{source}");
        assert_eq!(tools, expected, "{source}");
    }
}
