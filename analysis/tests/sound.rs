//! Odd ways to reach a tool: each is declared, or the program is dynamic.

use analysis::{Limits, analyze};

/// Programs that call `a:b` (and nothing else) in ways that must be understood.
const UNDERSTOOD: &[&str] = &[
    "[mcp.a.b][0]({})",
    "({ t: mcp.a.b })['t']({})",
    "let m; m = mcp; m.a.b()",
    "const f = () => m.a.b(); var m = mcp; f()",
    "for (const t of [mcp.a.b]) t({})",
    "(args.x || mcp.a.b)({})",
    "(args.x ?? mcp.a.b)({})",
    "(args.x && mcp.a.b)({})",
    "(mcp.a.b ?? 1)({})",
    "mcp.a && mcp.a.b && mcp.a.b({})",
    "if (mcp.a) mcp.a.b({})",
    "if (typeof mcp === 'undefined') throw 1; mcp.a.b({})",
    "function f({ fs }) { return fs.b({}) } f({ fs: mcp.a })",
    "function f(m) { return m.a.b({}) } f(mcp)",
    "const { a: { b: t } } = mcp; t({})",
    "const { x: { y: t = mcp.a.b } = {} } = args; t({})",
    "((x = mcp.a) => x.b({}))()",
    "let { t } = { t: mcp.a.b }; t({})",
    "const [t] = [mcp.a.b]; t({})",
    "const f = (...xs) => xs[0]({}); f(mcp.a.b)",
    "const f = (t) => () => t({}); f(mcp.a.b)()",
    "const f = function g(n) { if (n) return mcp.a.b; return g(1) }; f(0)({})",
    "let t; const set = (v) => { t = v }; set(mcp.a.b); t({})",
    "let t; { let u = mcp.a; t = u } t.b({})",
    "let t; try { t = mcp.a.b; throw 1 } catch { t({}) }",
    "let t; try { t = mcp.a.b } finally { t({}) }",
    "let t; out: { t = mcp.a.b; if (args.x) break out; t = null } t({})",
    "switch (args.x) { case 1: var t = mcp.a.b; break; case 2: t({}) } t({})",
    "let t = null; for (;;) { if (t) { t({}); break } t = mcp.a.b }",
    "let t = null; do { if (t) t({}); const u = mcp.a.b; t = u } while (args.x)",
    "function f(a = () => c, c = mcp.a.b) { return a()({}) } f()",
    "mcp['a']?.['b']({})",
    "globalThis['m' + 'cp'].a.b({})",
    "const { mcp: m } = globalThis; m.a.b({})",
    "globalThis.globalThis.mcp.a.b({})",
    "this.mcp.a.b({})",
    "new (class { constructor() { mcp.a.b({}) } })()",
    "new (class { static { mcp.a.b({}) } })()",
    "class A { run() { return this.go() } go() { return mcp.a.b({}) } } new A().run()",
    "class A { static run() { return mcp.a.b({}) } } A.run()",
    "const o = { get x() { return mcp.a.b({}) } }; o.x",
    "const o = { fs: mcp.a, go() { return this.fs.b({}) } }; o.go()",
    "const o = { in: { fs: mcp.a } }; o.in.fs.b({})",
    "const { fs, ...rest } = { fs: mcp.a, x: 1 }; fs.b(rest)",
    "const o = { ...{ t: mcp.a.b } }; o.t({})",
    "const k = `${'b'}`; mcp.a[k]({})",
    "const k = args.x ? 'b' : 'b'; mcp.a[k]({})",
    "x?.[mcp.a.b({})]",
    "const { [await mcp.a.b({})]: v } = args",
    "const { v = await mcp.a.b({}) } = args",
    "typeof mcp.a.b({}); void 0",
    "delete args[mcp.a.b({})]",
    "async function* g() { yield* await mcp.a.b({}) } for await (const x of g()) x",
    "const f = async (n) => n ? await f(n - 1) : await mcp.a.b({}); await f(3)",
    "mcp.a.b({}).then(({ x }) => x)",
    "Promise.resolve().then(() => mcp.a.b({}))",
    "setTimeout(() => mcp.a.b({}), 5)",
    "await new Promise((done) => mcp.a.b({}).then(done))",
    "[3, 1].sort(() => mcp.a.b({}))",
    "helper({ run: () => mcp.a.b({}) })",
    "const later = []; later.push(() => mcp.a.b({})); later[0]()",
    "a: b: for (;;) { mcp.a.b({}); break a }",
];

/// Programs that call `a:b` in ways that may be understood or not.
const SEEN: &[&str] = &[
    "const f = async () => mcp.a; (await f()).b()",
    "const o = {}; ({ x: o.y } = { x: mcp.a }); o.y.b()",
    "const o = []; [o[0]] = [mcp.a]; o[0].b()",
    "mcp.a.b.call.call(mcp.a.b, null, {})",
    "Promise.resolve(mcp.a.b).then((t) => t({}))",
    "new Proxy(mcp, {}).a.b({})",
    "Object.values({ t: mcp.a.b }).forEach((t) => t({}))",
    "const o = { t: mcp.a.b }; for (const k in o) o[k]({})",
    "const l = []; l[0] = mcp.a.b; l[0]({})",
    "const l = []; l.push(mcp.a); l[0].b({})",
    "function* g() { const m = yield; m.b({}) } const i = g(); i.next(); i.next(mcp.a)",
    "function* g() { yield mcp.a } [...g()][0].b({})",
    "Function.prototype.constructor('return mcp')().a.b({})",
    "[].constructor.constructor('return mcp')().a.b({})",
    "({}).toString.constructor('return mcp')().a.b({})",
    "(() => {})['constr' + 'uctor']('return mcp')().a.b({})",
    "Reflect.construct(Function, ['return mcp'])().a.b({})",
    "const e = eval; e('mcp.a.b({})')",
    "(0, eval)('mcp.a.b({})')",
    "globalThis.eval('mcp.a.b({})')",
    "const g = globalThis; g[args.x].a.b({})",
    "const { ...all } = mcp; all.a.b({})",
    "const [first] = [mcp]; first.a.b({})",
    "const f = () => { throw mcp.a }; try { f() } catch (m) { m.b({}) }",
    "class A { m = mcp.a; go() { return this.m.b({}) } } new A().go()",
    "class A { #m = mcp.a; go() { return this.#m.b({}) } } new A().go()",
    "class A { constructor(m) { this.m = m } go() { return this.m.b({}) } } new A(mcp.a).go()",
    "class A { get m() { return mcp.a } } new A().m.b({})",
    "class A { m() { return mcp.a } } new A().m().b({})",
    "class A { m() { return mcp.a } } class B extends A { go() { return super.m().b({}) } } new B().go()",
    "function F() { this.m = mcp.a } new F().m.b({})",
    "const o = { m: mcp.a, go() { return () => this.m.b({}) } }; o.go()()",
    "const o = { m: mcp.a }; const go = function () { return this.m.b({}) }; go.call(o)",
    "const o = { m: mcp.a }; o.go = function () { return this.m.b({}) }; o.go()",
    "const o = { m: mcp.a }; const p = { go() { return this.m.b({}) } }; Object.assign(o, p).go()",
    "const o = { m: mcp.a, __proto__: { go() { return this.m.b({}) } } }; o.go()",
    "const o = Object.create({ m: mcp.a }); o.m.b({})",
    "Array.prototype.go = function () { return this[0].b({}) }; [mcp.a].go()",
    "function tag(s, m) { return m.b({}) } tag`${mcp.a}`",
    "const o = { m: mcp.a, tag() { return this.m.b({}) } }; o.tag`x`",
    "const j = JSON.stringify({ toJSON() { return mcp.a.b({}) } })",
    "`${{ toString() { return mcp.a.b({}) } }}`",
    "+{ valueOf() { return mcp.a.b({}) } }",
    "await { then() { mcp.a.b({}) } }",
    "for (const x of { [Symbol.iterator]() { mcp.a.b({}) } }) x",
    "const [x] = { [Symbol.iterator]() { mcp.a.b({}) } }",
    "({}) instanceof { [Symbol.hasInstance]() { mcp.a.b({}) } }",
    "let k = 'b'; const o = { toString: () => k }; mcp.a[o]({})",
    "let k = 'x'; const f = async () => { await 0; k = 'b' }; await f(); mcp.a[k]({})",
    "let k = 'x'; [1].forEach(() => { k = 'b' }); mcp.a[k]({})",
    "let k = 'x'; ({ k } = { k: 'b' }); mcp.a[k]({})",
    "let k = 'x'; for (k of ['b']) ; mcp.a[k]({})",
    "let k = 'x'; for (k in { b: 1 }) mcp.a[k]({})",
    "let k = 'x'; try { k = 'b'; null.x } catch { mcp.a[k]({}) }",
    "let k = 'x'; try { k = 'b'; null.x; k = 'y' } catch {} mcp.a[k]({})",
    "let k = 'x'; l: { k = 'b'; if (args) break l; k = 'y' } mcp.a[k]({})",
    "let k = 'x'; while (args) { k = 'b'; if (args) break; k = 'y' } mcp.a[k]({})",
    "let k = 'x'; while (args) { mcp.a[k]({}); const n = k; k = n === 'x' ? 'b' : 'x' }",
    "let k = 'x'; args && (k = 'b'); mcp.a[k]({})",
    "let k = 'x'; args ? (k = 'b') : 0; mcp.a[k]({})",
    "let k = 'x'; k &&= 'b'; mcp.a[k]({})",
    "let k = ''; k += 'b'; mcp.a[k]({})",
    "let k = 'x'; function f(v = (k = 'b')) {} f(); mcp.a[k]({})",
    "let k = 'x'; class A { static [(k = 'b')] = 1 } mcp.a[k]({})",
    "let k = 'x'; const o = { get g() { k = 'b'; return 1 } }; o.g; mcp.a[k]({})",
    "let k = 'x'; switch (args) { case 1: k = 'b'; default: mcp.a[k]({}) }",
    "let k = 'x'; switch (args) { case 1: k = 'b'; break; case 2: k = 'y' } mcp.a[k]({})",
    "const f = (k) => mcp.a[k]({}); f('x'); f('b')",
    "const f = (k) => mcp.a[k]({}); ['b'].forEach(f)",
    "const f = (k) => mcp.a[k]({}); f(...['b'])",
    "const f = (k) => mcp.a[k]({}); f.apply(null, ['b'])",
    "const f = (k = 'b') => mcp.a[k]({}); f('x'); f()",
    "const f = (...ks) => mcp.a[ks[1]]({}); f('x', 'b')",
    "function f(k) { arguments[0] = 'b'; return mcp.a[k]({}) } f('x')",
    "const o = { k: 'x' }; const p = o; p.k = 'b'; mcp.a[o.k]({})",
    "const o = ['x']; o.push('b'); mcp.a[o[1]]({})",
    "const o = ['x']; const p = o; p[0] = 'b'; for (const k of o) mcp.a[k]({})",
    "const o = ['x', 'b']; mcp.a[o.pop()]({})",
    "const f = (o) => { o.k = 'b' }; const o = { k: 'x' }; f(o); mcp.a[o.k]({})",
    "const o = { k: 'x', set(v) { this.k = v } }; o.set('b'); mcp.a[o.k]({})",
    "const o = { k: 'x' }; Object.assign(o, { k: 'b' }); mcp.a[o.k]({})",
    "const o = { k: 'x', ...args }; mcp.a[o.k]({})",
    "const o = { k: 'x', [args.n]: 'b' }; mcp.a[o.k]({})",
    "const o = { k: 'x', get k() { return 'b' } }; mcp.a[o.k]({})",
    "const fs = [(t) => 0, (t) => t.b({})]; const g = fs; g.reverse(); fs[0](mcp.a)",
    "const o = { f: (t) => 0 }; const p = o; p.f = (t) => t.b({}); o.f(mcp.a)",
    "class A { f(t) {} } class B extends A { f(t) { t.b({}) } g() { this.f(mcp.a) } } new B().g()",
    "class A { g() { this.f(mcp.a) } f(t) {} } class B extends A { f(t) { t.b({}) } } new B().g()",
    "Array.prototype.map = function (f) { return f('b') }; ['x'].map((k) => mcp.a[k]({}))",
    "String.prototype.at = () => mcp.a; 'x'.at(0).b({})",
    "const p = [].__proto__; p.map = (f) => f('b'); ['x'].map((k) => mcp.a[k]({}))",
    "const A = Array.prototype; A.forEach = (f) => f('b'); ['x'].forEach((k) => mcp.a[k]({}))",
    "Promise.all = (l) => l[0].b({}); Promise.all([mcp.a])",
    "function f() { return arguments } f(mcp.a)[0].b({})",
    "const f = () => arguments[0]; f().a.b({})",
    "Reflect.ownKeys(mcp).forEach((n) => mcp[n].b({}))",
    "let m = null; const set = (x) => { m = x }; helper(set); m = mcp.a; m.b({})",
    "var mcp2 = mcp, a = mcp2.a; a.b({})",
    "do { var t = mcp.a.b } while (0); t({})",
    "const f = (t) => t; f(f)(mcp.a).b({})",
    "const id = (x) => x; id(id(id(mcp))).a.b({})",
    "const pair = (x, y) => [x, y]; pair(1, mcp.a.b)[1]({})",
    "const wrap = (t) => ({ run: t }); wrap(mcp.a.b).run({})",
    "const wrap = (t) => ({ run: (x) => t(x) }); wrap(mcp.a.b).run({})",
    "const late = async () => ({ t: mcp.a.b }); (await late()).t({})",
    "const cell = { v: null }; const put = (v) => { cell.v = v }; put(mcp.a); cell.v.b({})",
    "const m = new Map([['k', mcp.a]]); m.get('k').b({})",
    "const s = new Set(); s.add(mcp.a.b); for (const t of s) t({})",
    "queueMicrotask(mcp.a.b)",
    "label: { const t = mcp.a; t.b({}); break label }",
];

fn tools_of(source: &str) -> (Vec<String>, bool) {
    let analysis = analyze(source, &Limits::default());
    assert!(analysis.can_run(), "{source}: {:?}", analysis.first_error());
    (analysis.tools.iter().map(ToString::to_string).collect(), analysis.dynamic)
}

#[test]
fn what_is_understood_is_not_dynamic() {
    for source in UNDERSTOOD {
        let (tools, dynamic) = tools_of(source);
        assert!(tools.contains(&"a:b".to_owned()), "{source}: {tools:?}");
        assert!(!dynamic, "{source}");
    }
}

#[test]
fn every_reached_tool_is_declared_or_the_program_is_dynamic() {
    for source in UNDERSTOOD.iter().chain(SEEN) {
        let (tools, dynamic) = tools_of(source);
        assert!(dynamic || tools.contains(&"a:b".to_owned()), "{source}: {tools:?}");
        // The same within a function, a class, a loop and a branch.
        for (head, tail) in [
            ("async function outer() {", "} await outer();"),
            ("await (async () => {", "})();"),
            ("for (const one of args.list) {", "}"),
            ("if (args.y) {", "} else { mcp.c.d({}) }"),
            ("try {", "} catch (error) { throw error }"),
            ("class Outer { async run() {", "} } new Outer().run()"),
        ] {
            let wrapped = format!("{head} {source} {tail}");
            let analysis = analyze(&wrapped, &Limits::default());
            if !analysis.can_run() {
                // A label or `await` may not stand everywhere.
                continue;
            }
            let declared = analysis.tools.iter().any(|tool| tool.as_str() == "a:b");
            // There `this` and `arguments` are others.
            let moved = source.starts_with("this.") || source.contains("=> arguments");
            assert!(analysis.dynamic || declared || moved, "{wrapped}");
        }
    }
}
