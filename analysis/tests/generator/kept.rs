//! Programs that modify the objects in which they store names and namespaces, in many ways,
//! and then call tools by them.

use super::program::{Part, Piece, Program};
use super::random::Random;
use super::{Construct, wild};

/// The declarations that such programs include if they use them: a name and its declaration.
/// A later one may use earlier ones.
pub(super) const KEPT: &[(&str, &str)] = &[
    (
        "o1",
        "let o1: any = { k: \"aa\", j: \"bb\", n: { k: \"cc\" }, f: () => \"dd\", m() { return this.k; } };",
    ),
    ("l1", "let l1: any = [\"aa\", \"bb\"];"),
    (
        "q1",
        "const q1: any = [{ k: \"aa\", s: \"fs\", n: { k: \"ab\" }, l: [\"ac\"] }, { k: \"ba\", s: \"git\", l: [\"bc\", \"bd\"] }];",
    ),
    (
        "q2",
        "const q2: any = { one: { k: \"ca\", s: \"web\" }, two: { k: \"cb\", s: \"db\", t: [\"cc\"] } };",
    ),
    ("s1", "let s1: any = \"ee\";"),
    ("s2", "let s2: any = \"gg\";"),
    ("a1", "let a1 = o1;"),
    ("a2", "const a2 = { o: o1 };"),
    ("a3", "const a3 = [l1];"),
    ("t1", "const t1: any = { n: mcp.fs, m: mcp };"),
    ("f1", "let f1: any = (k: any) => k;"),
    ("f2", "let f2: any = (o: any) => mcp.fs[o.k]({});"),
    ("g1", "const g1 = async () => o1.k;"),
    ("g2", "function* g2() { yield l1[0]; yield \"hh\"; }"),
    (
        "c1",
        "class c1 { k: any = \"aa\"; static s: any = \"cc\"; m(): any { return \"bb\"; } call() { return this.m(); } static sm(): any { return this.s; } }",
    ),
    (
        "c2",
        "class c2 { n: any = mcp.fs; c: any; #p: any = mcp.fs; name = \"ii\"; tool: any = mcp.fs.own; static ns: any = mcp.fs; constructor(c?: any) { this.c = c ?? mcp.fs; } go() { return this.n.gone({}); } priv() { return this.#p.hid({}); } cons() { return this.c.made({}); } static sgo() { return this.ns.sgone({}); } }",
    ),
];

/// Calls of tools by stored names.
pub(super) const USES: &[Construct] = &[
    wild("kept: use 1", "mcp.fs[o1.k]({});"),
    wild("kept: use 2", "mcp.fs[o1[\"j\"]]({});"),
    wild("kept: use 3", "mcp.fs[o1.n.k]({});"),
    wild("kept: use 4", "mcp.fs[l1[0]]({});"),
    wild("kept: use 5", "for (const k of l1) mcp.fs[k]({});"),
    wild("kept: use 6", "for (const k of [...l1]) mcp.fs[k]({});"),
    wild("kept: use 7", "l1.map((k: any) => mcp.fs[k]({}));"),
    wild("kept: use 8", "l1.forEach((k: any, i: any, l: any) => { mcp.fs[l[i]]({}); });"),
    wild("kept: use 9", "const { k: $1, n: { k: $2 } } = o1; mcp.fs[$1]({}); mcp.fs[$2]({});"),
    wild("kept: use 10", "const [$1, $2] = l1; mcp.fs[$1]({}); mcp.fs[$2]({});"),
    wild("kept: use 11", "const { ...$1 } = o1; mcp.fs[$1.k]({}); mcp.fs[$1.n.k]({});"),
    wild("kept: use 12", "mcp.fs[({ ...o1 }).k]({}); mcp.fs[[...l1][1]]({});"),
    wild("kept: use 13", "mcp.fs[o1.f()]({});"),
    wild("kept: use 14", "mcp.fs[o1.m()]({});"),
    wild("kept: use 15", "mcp.fs[new c1().m()]({});"),
    wild("kept: use 16", "mcp.fs[new c1().k]({});"),
    wild("kept: use 17", "mcp.fs[c1.s]({}); mcp.fs[c1.sm()]({});"),
    wild("kept: use 18", "mcp.fs[l1.join(\"\")]({});"),
    wild("kept: use 19", "mcp.fs[Object.values(o1)[0] as any]({});"),
    wild("kept: use 20", "for (const [k, v] of Object.entries({ ...o1.n })) mcp.fs[v as any]({});"),
    wild("kept: use 21", "for (const k of Object.keys(o1.n)) mcp.fs[k]({});"),
    wild("kept: use 22", "for (const k in o1.n) mcp.fs[k]({});"),
    wild("kept: use 23", "t1.n.go({});"),
    wild("kept: use 24", "t1.m.fs.go2({});"),
    wild("kept: use 25", "t1[\"n\"].go3({});"),
    wild("kept: use 26", "const { n: $1 } = t1; $1.go4({});"),
    wild("kept: use 27", "Object.values(t1).forEach((t: any) => t.go5?.({}));"),
    wild("kept: use 28", "new c2().go(); new c2().priv();"),
    wild("kept: use 29", "new c2().cons(); c2.sgo();"),
    wild("kept: use 30", "const $1 = new c2(); mcp.fs[$1.name]({}); $1.tool({});"),
    wild("kept: use 31", "g1().then((k: any) => mcp.fs[k]({}));"),
    wild("kept: use 32", "mcp.fs[(~await g1())]({});"),
    wild("kept: use 33", "for (const k of g2()) mcp.fs[k]({});"),
    wild("kept: use 34", "mcp.fs[((a = o1.k) => a)()]({}); mcp.fs[`${l1[0]}`]({});"),
    wild("kept: use 35", "mcp.fs[f1(\"aa\")]({}); f2(o1); f2({ k: \"ff\" });"),
    wild("kept: use 36", "mcp.fs[(args.on ? o1 : { k: \"ee\" }).k]({});"),
    wild("kept: use 37", "[o1].map(({ k }: any) => mcp.fs[k]({}));"),
    wild("kept: use 38", "for (const { k } of [o1, { k: \"gg\" }]) mcp.fs[k]({});"),
    wild("kept: use 39", "mcp.fs[s1]({}); mcp.fs[s2 + s1]({});"),
    wild("kept: use 40", "for (const x of q1) mcp.fs[x.k]({});"),
    wild("kept: use 41", "for (const { s, k } of q1) mcp[s][k]({});"),
    wild("kept: use 42", "for (const x of q1) mcp[x.s][x.k]({});"),
    wild("kept: use 43", "q1.forEach(({ s, k }: any) => mcp[s][k]({}));"),
    wild("kept: use 44", "for (const [, x] of Object.entries(q2) as any) mcp[x.s][x.k]({});"),
    wild("kept: use 45", "for (const { s, k } of Object.values(q2) as any) mcp[s][k]({});"),
    wild("kept: use 46", "for (const x of q1.filter((x: any) => x.k)) mcp[x.s][x.k]({});"),
    wild("kept: use 47", "for (const [i, { s, k }] of q1.entries()) mcp[s][k]({ i });"),
    wild("kept: use 48", "mcp.fs[q1[0].n?.k]({}); mcp.fs[q2.two.t[0]]({});"),
    wild("kept: use 49", "for (const { s, l } of q1) for (const k of l) mcp[s][k]({});"),
    wild("kept: use 50", "const [$1, { s: $2 }] = q1; mcp[$2][$1.k]({});"),
    wild(
        "kept: use 51",
        "let $1: any; for (const { s, k } of q1) { if ($1) mcp[$1][k]({}); $1 = s; }",
    ),
    wild("kept: use 52", "let $1: any; for (const x of q1) { $1 ??= x; mcp[$1.s][x.k]({}); }"),
    wild("kept: use 53", "for (const { s } of q1) for (const { k } of q1) mcp[s][k]({});"),
    wild("kept: use 54", "for (const k in q2) mcp.fs[k]({});"),
    wild("kept: use 55", "const { one: $1, ...$2 } = q2; mcp[$2.two.s][$1.k]({});"),
    wild("kept: use 56", "for (const x of args.on ? q1 : []) mcp[x.s][x.k]({});"),
    wild("kept: use 57", "for (const x of q1) { const y = mcp[x.s]; y[x.k]({}); }"),
    wild("kept: use 58", "for (const x of q1) { const { s, n } = x; mcp[s][n?.k ?? x.k]({}); }"),
    wild("kept: use 59", "const $1 = q1.map(({ s }: any) => mcp[s]); $1[0].got({});"),
    wild(
        "kept: use 60",
        "const $1: any = []; for (const { s, k } of q1) $1.push(() => mcp[s][k]({})); for (const f of $1) f();",
    ),
    wild("kept: use 61", "for (var { s: $1, k: $2 } of q1) ~await null, mcp[$1][$2]({});"),
];

/// Modifications; `@E` is an expression for the object.
pub(super) const KEPT_CHANGES: &[Construct] = &[
    wild("kept: change 1", "@E.k = \"zz\";"),
    wild("kept: change 2", "@E[\"k\"] = \"zz\"; @E.n = { k: \"zy\" };"),
    wild("kept: change 3", "@E[args.text] = \"zz\"; @E[[\"k\"][0]] = \"zx\";"),
    wild("kept: change 4", "({ a: @E.k } = { a: \"zz\" });"),
    wild("kept: change 5", "[@E.k, @E.n.k] = [\"zz\", \"zy\"];"),
    wild("kept: change 6", "for (@E.k of [\"zz\"]);"),
    wild("kept: change 7", "for (@E.k in { zz: 1 });"),
    wild("kept: change 8", "Object.assign(@E, { k: \"zz\" });"),
    wild("kept: change 9", "Object.defineProperty(@E, \"k\", { value: \"zz\" });"),
    wild("kept: change 10", "Reflect.set(@E, \"k\", \"zz\");"),
    wild("kept: change 11", "delete @E.k;"),
    wild("kept: change 12", "@E.k += \"z\";"),
    wild("kept: change 13", "@E.n.k = \"zz\";"),
    wild("kept: change 14", "(function (this: any) { this.k = \"zz\"; }).call(@E);"),
    wild("kept: change 15", "(function (this: any) { this.k = \"zz\"; }).bind(@E)();"),
    wild("kept: change 16", "((x: any) => { x.k = \"zz\"; })(@E);"),
    wild("kept: change 17", "((x: any) => { x.n.k = \"zz\"; })(@E);"),
    wild("kept: change 18", "(({ n }: any) => { n.k = \"zz\"; })(@E);"),
    wild("kept: change 19", "((...x: any) => { x[0].k = \"zz\"; })(@E);"),
    wild("kept: change 20", "(function () { arguments[0].k = \"zz\"; } as any)(@E);"),
    wild("kept: change 21", "[@E].forEach((x: any) => { x.k = \"zz\"; });"),
    wild("kept: change 22", "[1].forEach(function (this: any) { this.k = \"zz\"; }, @E);"),
    wild("kept: change 23", "for (const x of [@E]) x.k = \"zz\";"),
    wild("kept: change 24", "const { n: $1 } = @E; $1.k = \"zz\";"),
    wild("kept: change 25", "const { ...$1 } = @E; $1.n.k = \"zz\";"),
    wild("kept: change 26", "const $1 = { p: @E }; $1.p.k = \"zz\";"),
    wild("kept: change 27", "const $1 = () => @E; $1().k = \"zz\";"),
    wild("kept: change 28", "const $1 = () => { @E.k = \"zz\"; }; $1();"),
    wild(
        "kept: change 29",
        "const $1 = function* () { yield @E; }; for (const x of $1()) x.k = \"zz\";",
    ),
    wild("kept: change 30", "@E.f = () => \"zz\"; @E.m = function () { return \"zy\"; };"),
    wild("kept: change 31", "@E.set = function (v: any) { this.k = v; }; @E.set(\"zz\");"),
    wild(
        "kept: change 32",
        "setTimeout(() => { @E.k = \"zz\"; }, 0); ~await new Promise((done) => setTimeout(done, 1));",
    ),
    wild("kept: change 33", "~await Promise.resolve(@E).then((x: any) => { x.k = \"zz\"; });"),
    wild("kept: change 34", "(~await Promise.all([@E]))[0].k = \"zz\";"),
    wild("kept: change 35", "(~await @E).k = \"zz\";"),
    wild("kept: change 36", "try { throw @E; } catch (e: any) { e.k = \"zz\"; }"),
    wild(
        "kept: change 37",
        "Object.setPrototypeOf(@E, { extra: \"zz\" }); @E.__proto__ = { k: \"zy\" };",
    ),
    wild("kept: change 38", "new Proxy(@E, {}).k = \"zz\";"),
    wild("kept: change 39", "((s: any, x: any) => { x.k = \"zz\"; })`${@E}`;"),
    wild("kept: change 40", "({ get g() { @E.k = \"zz\"; return 1; } }).g;"),
    wild("kept: change 41", "({ set p(v: any) { v.k = \"zz\"; } }).p = @E;"),
    wild("kept: change 42", "new (class { constructor(x: any) { x.k = \"zz\"; } })(@E);"),
    wild("kept: change 43", "class $1 { static x = @E; static { this.x.k = \"zz\"; } }"),
    wild("kept: change 44", "[@E].filter(() => true)[0].k = \"zz\";"),
    wild("kept: change 45", "[1].reduce((x: any) => { x.k = \"zz\"; return x; }, @E);"),
    wild("kept: change 46", "[2, 1].sort(() => { @E.k = \"zz\"; return 0; });"),
    wild("kept: change 47", "JSON.stringify({ toJSON() { @E.k = \"zz\"; return 1; } });"),
    wild("kept: change 48", "`${{ toString() { @E.k = \"zz\"; return \"\"; } }}`;"),
    wild("kept: change 49", "l1.push(\"zz\");"),
    wild("kept: change 50", "l1[0] = \"zz\";"),
    wild("kept: change 51", "l1.reverse();"),
    wild("kept: change 52", "l1.fill(\"zz\");"),
    wild("kept: change 53", "l1.splice(0, 1, \"zz\");"),
    wild("kept: change 54", "l1.unshift(\"zz\");"),
    wild("kept: change 55", "l1.length = 1;"),
    wild("kept: change 56", "l1.shift();"),
    wild("kept: change 57", "[l1[0], l1[1]] = [l1[1], \"zz\"];"),
    wild("kept: change 58", "Array.prototype.push.call(l1, \"zz\");"),
    wild("kept: change 59", "Array.prototype.unshift.apply(l1, [\"zz\"]);"),
    wild("kept: change 60", "l1.forEach((k: any, i: any, l: any) => { l[i] = \"zz\"; });"),
    wild("kept: change 61", "l1.map((k: any, i: any, l: any) => { l[0] = \"zz\"; });"),
    wild(
        "kept: change 62",
        "l1.reduce((s: any, k: any, i: any, l: any) => { l[1] = \"zz\"; return s; }, 0);",
    ),
    wild("kept: change 63", "l1.filter((k: any) => { l1[1] = \"zz\"; return true; });"),
    wild("kept: change 64", "((x: any) => x.push(\"zz\"))(l1);"),
    wild("kept: change 65", "((...x: any) => x[0].push(\"zz\"))(l1);"),
    wild("kept: change 66", "const $1 = l1; $1[1] = \"zz\";"),
    wild("kept: change 67", "const $1 = { l: l1 }; $1.l[0] = \"zz\";"),
    wild("kept: change 68", "const [...$1] = [l1]; $1[0][0] = \"zz\";"),
    wild("kept: change 69", "a3[0][0] = \"zz\";"),
    wild("kept: change 70", "Reflect.set(l1, 0, \"zz\"); Object.assign(l1, [\"zy\"]);"),
    wild("kept: change 71", "l1.go = 1; l1.sort(() => -1); l1.copyWithin(0, 1);"),
    wild("kept: change 72", "for (l1[0] of [\"zz\"]); for (l1[1] in { zy: 1 });"),
    wild("kept: change 73", "c1.s = \"zz\"; c1.sm = () => \"zy\";"),
    wild("kept: change 74", "c1.prototype.m = () => \"zz\";"),
    wild(
        "kept: change 75",
        "Object.assign(c1, { s: \"zz\" }); Object.assign(c1.prototype, { m: () => \"zy\" });",
    ),
    wild(
        "kept: change 76",
        "const $1 = new c1(); $1.k = \"zz\"; mcp.fs[$1.k]({}); mcp.fs[$1.m()]({});",
    ),
    wild(
        "kept: change 77",
        "class $1 extends c1 { k = \"zz\"; m() { return \"zy\"; } } mcp.fs[new $1().k]({}); mcp.fs[new $1().call()]({});",
    ),
    wild(
        "kept: change 78",
        "class $1 extends c1 { get k2() { return \"zz\"; } m() { return super.m() + this.k; } } mcp.fs[new $1().m()]({}); mcp.fs[new $1().k2]({});",
    ),
    wild(
        "kept: change 79",
        "class $1 extends c2 { constructor() { super(); this.n = mcp.git; } } new $1().go(); new $1().cons();",
    ),
    wild(
        "kept: change 80",
        "class $1 extends c2 { n = mcp.git; name = \"zz\"; } new $1().go(); mcp.fs[new $1().name]({});",
    ),
    wild("kept: change 81", "c2.prototype.go = function (this: any) { return mcp.git.made({}); };"),
    wild("kept: change 82", "c2.ns = mcp.git; c2.sgo();"),
    wild(
        "kept: change 83",
        "new c2().go.call({ n: mcp.web }); c2.prototype.cons.call({ c: mcp.web });",
    ),
    wild(
        "kept: change 84",
        "const $1 = new c2(); $1.n = mcp.web; $1.go(); $1[\"c\"] = mcp.db; $1.cons();",
    ),
    wild("kept: change 85", "Object.assign(new c2(), { n: mcp.web }).go();"),
    wild("kept: change 86", "const { go: $1 } = new c2(); $1.call({ n: mcp.mail });"),
    wild("kept: change 87", "const $1: any = c2; $1.ns = mcp.json; new $1(mcp.mail).cons();"),
    wild("kept: change 88", "new c2(mcp.mail).cons(); new c2(mcp.shell).cons();"),
    wild("kept: change 89", "t1.n = mcp.git;"),
    wild("kept: change 90", "const $1 = t1; $1.n = mcp.git; $1.m = { fs: mcp.web };"),
    wild("kept: change 91", "((x: any) => { x.n = mcp.git; })(t1);"),
    wild("kept: change 92", "Object.assign(t1, { n: mcp.git });"),
    wild("kept: change 93", "({ n: t1.n } = { n: mcp.git });"),
    wild("kept: change 94", "const { m: $1 } = t1; t1.n = $1.web;"),
    wild("kept: change 95", "f1 = (k: any) => k + \"z\"; f2 = (o: any) => mcp.git[o.k]({});"),
    wild("kept: change 96", "s1 = s1 + \"z\"; s2 = l1[1];"),
    wild("kept: change 97", "s1 = o1.k; s2 = `${o1.n.k}`;"),
    wild("kept: change 98", "({ k: s1, n: { k: s2 } } = o1);"),
    wild("kept: change 99", "[s1, ...[s2]] = l1;"),
    wild("kept: change 100", "for (s1 of l1) { s2 = s1; }"),
    wild("kept: change 101", "l1.forEach((k: any) => { s1 = k; });"),
    wild("kept: change 102", "s1 = l1.reduce((a: any, k: any) => k, \"zz\");"),
    wild(
        "kept: change 103",
        "o1 = { k: \"yy\", n: { k: \"yx\" }, f: () => \"yw\", m: () => \"yv\" };",
    ),
    wild("kept: change 104", "l1 = [\"yy\", \"yx\"];"),
    wild("kept: change 105", "if (args.on) { o1 = { ...o1, k: \"xx\" }; l1 = [...l1, \"xy\"]; }"),
    wild("kept: change 106", "a1 = { k: \"ww\" }; o1 = a1;"),
    wild(
        "kept: change 107",
        "~await Promise.all([(async () => { s1 = \"vv\"; await null; s2 = \"vw\"; l1[0] = s1; })()]);",
    ),
    wild("kept: change 108", "q1.push({ k: \"zz\", s: \"mail\" });"),
    wild("kept: change 109", "q1[0] = { k: \"zz\", s: \"mail\" };"),
    wild("kept: change 110", "q1.reverse();"),
    wild("kept: change 111", "for (const x of q1) x.k = \"zz\";"),
    wild("kept: change 112", "for (const x of q1) x.s = \"mail\";"),
    wild("kept: change 113", "for (const { n } of q1) if (n) n.k = \"zz\";"),
    wild("kept: change 114", "for (const { l } of q1) l.push(\"zz\");"),
    wild("kept: change 115", "q1[1].l[0] = \"zz\";"),
    wild("kept: change 116", "q2.three = { k: \"zz\", s: \"mail\" };"),
    wild("kept: change 117", "q2.one = { k: \"zz\", s: \"mail\" };"),
    wild("kept: change 118", "delete q2.one;"),
    wild("kept: change 119", "for (const k in q2) q2[k].k = \"zz\";"),
    wild("kept: change 120", "q1.forEach((x: any, i: any) => { q1[i] = { ...x, k: \"zz\" }; });"),
    wild("kept: change 121", "q1.forEach((x: any) => { [x.s] = [\"mail\"]; });"),
    wild("kept: change 122", "for (const x of q1) for (const y of q1) x.k = y.k + \"z\";"),
    wild("kept: change 123", "const [$1] = q1; $1.s = \"mail\";"),
    wild("kept: change 124", "const { two: { t: $1 } } = q2; $1[0] = \"zz\";"),
    wild("kept: change 125", "const { two: $1 = {} } = q2; $1.k = \"zz\";"),
    wild("kept: change 126", "for (const [, x] of Object.entries(q2) as any) x.s = \"mail\";"),
    wild("kept: change 127", "Object.values(q2).forEach((x: any) => { x.k = \"zz\"; });"),
    wild(
        "kept: change 128",
        "q1.filter((x: any) => x.l).forEach((x: any) => x.l.unshift(\"zz\"));",
    ),
    wild("kept: change 129", "q1.sort((a: any) => { a.k = \"zz\"; return 0; });"),
    wild("kept: change 130", "((x: any) => { x[0].k = \"zz\"; })(q1);"),
    wild(
        "kept: change 131",
        "const $1 = q1.filter((x: any) => x); $1[0].s = \"mail\"; $1.push({ k: \"zz\", s: \"mail\" });",
    ),
    wild(
        "kept: change 132",
        "const $1 = Object.entries(q2) as any; $1[0][1].k = \"zz\"; $1[1][0] = \"zy\";",
    ),
    wild("kept: change 133", "let $1: any; for ($1 of q1); $1.k = \"zz\";"),
    wild(
        "kept: change 134",
        "const $1: any = {}; [$1.a, ...$1.b] = q1; $1.a.k = \"zz\"; $1.b[0].s = \"mail\";",
    ),
];

/// Expressions for the object `o1`, and for rows of tables.
pub(super) const OBJECTS: &[Construct] = &[
    wild("kept: name 1", "o1"),
    wild("kept: name 2", "(args.on ? o1 : {} as any)"),
    wild("kept: name 3", "(args.missing || o1)"),
    wild("kept: name 4", "(o1 && o1)"),
    wild("kept: name 5", "(0, o1)"),
    wild("kept: name 6", "[o1][0]"),
    wild("kept: name 7", "({ o: o1 }).o"),
    wild("kept: name 8", "((x) => x)(o1)"),
    wild("kept: name 9", "Object.values({ o: o1 })[0]"),
    wild("kept: name 10", "Object.entries({ o: o1 })[0][1]"),
    wild("kept: name 11", "Object.assign({}, { o: o1 }).o"),
    wild("kept: name 12", "a1"),
    wild("kept: name 13", "a2.o"),
    wild("kept: name 14", "Object.fromEntries([[\"o\", o1]]).o"),
    wild("kept: name 15", "[...[o1]][0]"),
    wild("kept: name 16", "({ ...{ o: o1 } }).o"),
    wild("kept: name 17", "((x = o1) => x)()"),
    wild("kept: name 18", "q1[0]"),
    wild("kept: name 19", "q2.one"),
    wild("kept: name 20", "[...q1][0]"),
    wild("kept: name 21", "(Object.values(q2)[0] as any)"),
    wild("kept: name 22", "q1.filter(() => true)[0]"),
    wild("kept: name 23", "q1.find((x: any) => x.k)"),
    wild("kept: name 24", "q1.at(0)"),
    wild("kept: name 25", "q1.slice(0)[0]"),
    wild("kept: name 26", "[...q1.entries()][0][1]"),
    wild("kept: name 27", "[...q1.values()][1]"),
    wild("kept: name 28", "(args.on ? q1 : [])[0]"),
    wild("kept: name 29", "q1.map((x: any) => x)[0]"),
    wild("kept: name 30", "q1.concat()[1]"),
    wild("kept: name 31", "(([x]: any) => x)(q1)"),
    wild("kept: name 32", "q1.reduce((a: any) => a)"),
    wild("kept: name 33", "q1.flatMap((x: any) => [x])[0]"),
    wild("kept: name 34", "((x = q1[0]) => x)()"),
    wild("kept: name 35", "(q1[0] ?? {})"),
    wild("kept: name 36", "(({ ...x }: any) => x.two)(q2)"),
    wild("kept: name 37", "(q1[args.n] ?? q1[1])"),
];

/// Constructs around a modification or a use.
const AROUND: &[(&str, &str)] = &[
    ("", ""),
    ("", ""),
    ("if (args.on) {", "}"),
    ("for (const around of [1, 2]) {", "}"),
    ("try {", "} catch {}"),
    ("try { null; } finally {", "}"),
    ("await (async () => {", "})();"),
    ("around: {", "}"),
    ("const run = async () => {", "}; await run();"),
    ("await Promise.all([1, 2].map(async () => {", "}));"),
];

/// Writes a program that modifies the objects in which it stores names and namespaces.
pub(super) fn write(seed: u64, mut random: Random) -> Program {
    let mut body = Vec::new();
    let mut names = 0;
    let first = random.percent(75);
    // Few statements: a larger program is more likely to be dynamic, which shows nothing.
    for at in 0..2 + random.below(5) / 3 {
        let change = first == (at == 0);
        let table = if change { KEPT_CHANGES } else { USES };
        let construct = random.one(table);
        let mut text = construct.text.replace("~await", "await");
        while text.contains("@E") {
            let object = random.one(OBJECTS).text;
            text = text.replacen("@E", object, 1);
        }
        for mark in ["$1", "$2"] {
            names += 1;
            text = text.replace(mark, &format!("v{names}"));
        }
        // What is declared is seen by what follows, so only a block closes around it.
        let (before, after) = *random.one(AROUND);
        names += 1;
        let (before, after) = (
            before.replace("run =", &format!("run{names} =")),
            after.replace("run()", &format!("run{names}()")),
        );
        body.push(Part {
            pieces: vec![Piece::Text(format!("{before} {text} {after}\n"))],
            constructs: vec![construct.name],
            ..Part::default()
        });
    }
    let mut used: String = Program { seed, resolvable: false, body: body.clone() }.source();
    for (name, declared) in KEPT.iter().rev() {
        let is_used = used.match_indices(name).any(|(at, _)| {
            let near = |next: Option<char>| next.is_some_and(|c| c.is_ascii_alphanumeric());
            !near(used[..at].chars().next_back()) && !near(used[at + name.len()..].chars().next())
        });
        if is_used {
            used.push_str(declared);
            let pieces = vec![Piece::Text(format!("{declared}\n"))];
            body.insert(0, Part { pieces, ..Part::default() });
        }
    }
    Program { seed, resolvable: false, body }
}
