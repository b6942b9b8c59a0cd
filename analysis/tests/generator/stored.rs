//! Programs that store names and namespaces in objects, lists and classes, change these in every possible way, and then
//! call tools by them.

mod changes;

use super::program::{Part, Piece, Program};
use super::random::Random;
use super::{Construct, dynamic};
use changes::CHANGES;

/// The variables of such programs: a name and its declaration, which may use the variables before it. A program has
/// only the declarations that it uses.
const DECLARATIONS: &[(&str, &str)] = &[
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

/// Calls of tools by the stored names.
const USES: &[Construct] = &[
    dynamic("stored: use 1", "mcp.fs[o1.k]({});"),
    dynamic("stored: use 2", "mcp.fs[o1[\"j\"]]({});"),
    dynamic("stored: use 3", "mcp.fs[o1.n.k]({});"),
    dynamic("stored: use 4", "mcp.fs[l1[0]]({});"),
    dynamic("stored: use 5", "for (const k of l1) mcp.fs[k]({});"),
    dynamic("stored: use 6", "for (const k of [...l1]) mcp.fs[k]({});"),
    dynamic("stored: use 7", "l1.map((k: any) => mcp.fs[k]({}));"),
    dynamic("stored: use 8", "l1.forEach((k: any, i: any, l: any) => { mcp.fs[l[i]]({}); });"),
    dynamic("stored: use 9", "const { k: $1, n: { k: $2 } } = o1; mcp.fs[$1]({}); mcp.fs[$2]({});"),
    dynamic("stored: use 10", "const [$1, $2] = l1; mcp.fs[$1]({}); mcp.fs[$2]({});"),
    dynamic("stored: use 11", "const { ...$1 } = o1; mcp.fs[$1.k]({}); mcp.fs[$1.n.k]({});"),
    dynamic("stored: use 12", "mcp.fs[({ ...o1 }).k]({}); mcp.fs[[...l1][1]]({});"),
    dynamic("stored: use 13", "mcp.fs[o1.f()]({});"),
    dynamic("stored: use 14", "mcp.fs[o1.m()]({});"),
    dynamic("stored: use 15", "mcp.fs[new c1().m()]({});"),
    dynamic("stored: use 16", "mcp.fs[new c1().k]({});"),
    dynamic("stored: use 17", "mcp.fs[c1.s]({}); mcp.fs[c1.sm()]({});"),
    dynamic("stored: use 18", "mcp.fs[l1.join(\"\")]({});"),
    dynamic("stored: use 19", "mcp.fs[Object.values(o1)[0] as any]({});"),
    dynamic(
        "stored: use 20",
        "for (const [k, v] of Object.entries({ ...o1.n })) mcp.fs[v as any]({});",
    ),
    dynamic("stored: use 21", "for (const k of Object.keys(o1.n)) mcp.fs[k]({});"),
    dynamic("stored: use 22", "for (const k in o1.n) mcp.fs[k]({});"),
    dynamic("stored: use 23", "t1.n.go({});"),
    dynamic("stored: use 24", "t1.m.fs.go2({});"),
    dynamic("stored: use 25", "t1[\"n\"].go3({});"),
    dynamic("stored: use 26", "const { n: $1 } = t1; $1.go4({});"),
    dynamic("stored: use 27", "Object.values(t1).forEach((t: any) => t.go5?.({}));"),
    dynamic("stored: use 28", "new c2().go(); new c2().priv();"),
    dynamic("stored: use 29", "new c2().cons(); c2.sgo();"),
    dynamic("stored: use 30", "const $1 = new c2(); mcp.fs[$1.name]({}); $1.tool({});"),
    dynamic("stored: use 31", "g1().then((k: any) => mcp.fs[k]({}));"),
    dynamic("stored: use 32", "mcp.fs[(~await g1())]({});"),
    dynamic("stored: use 33", "for (const k of g2()) mcp.fs[k]({});"),
    dynamic("stored: use 34", "mcp.fs[((a = o1.k) => a)()]({}); mcp.fs[`${l1[0]}`]({});"),
    dynamic("stored: use 35", "mcp.fs[f1(\"aa\")]({}); f2(o1); f2({ k: \"ff\" });"),
    dynamic("stored: use 36", "mcp.fs[(args.on ? o1 : { k: \"ee\" }).k]({});"),
    dynamic("stored: use 37", "[o1].map(({ k }: any) => mcp.fs[k]({}));"),
    dynamic("stored: use 38", "for (const { k } of [o1, { k: \"gg\" }]) mcp.fs[k]({});"),
    dynamic("stored: use 39", "mcp.fs[s1]({}); mcp.fs[s2 + s1]({});"),
    dynamic("stored: use 40", "for (const x of q1) mcp.fs[x.k]({});"),
    dynamic("stored: use 41", "for (const { s, k } of q1) mcp[s][k]({});"),
    dynamic("stored: use 42", "for (const x of q1) mcp[x.s][x.k]({});"),
    dynamic("stored: use 43", "q1.forEach(({ s, k }: any) => mcp[s][k]({}));"),
    dynamic("stored: use 44", "for (const [, x] of Object.entries(q2) as any) mcp[x.s][x.k]({});"),
    dynamic("stored: use 45", "for (const { s, k } of Object.values(q2) as any) mcp[s][k]({});"),
    dynamic("stored: use 46", "for (const x of q1.filter((x: any) => x.k)) mcp[x.s][x.k]({});"),
    dynamic("stored: use 47", "for (const [i, { s, k }] of q1.entries()) mcp[s][k]({ i });"),
    dynamic("stored: use 48", "mcp.fs[q1[0].n?.k]({}); mcp.fs[q2.two.t[0]]({});"),
    dynamic("stored: use 49", "for (const { s, l } of q1) for (const k of l) mcp[s][k]({});"),
    dynamic("stored: use 50", "const [$1, { s: $2 }] = q1; mcp[$2][$1.k]({});"),
    dynamic(
        "stored: use 51",
        "let $1: any; for (const { s, k } of q1) { if ($1) mcp[$1][k]({}); $1 = s; }",
    ),
    dynamic("stored: use 52", "let $1: any; for (const x of q1) { $1 ??= x; mcp[$1.s][x.k]({}); }"),
    dynamic("stored: use 53", "for (const { s } of q1) for (const { k } of q1) mcp[s][k]({});"),
    dynamic("stored: use 54", "for (const k in q2) mcp.fs[k]({});"),
    dynamic("stored: use 55", "const { one: $1, ...$2 } = q2; mcp[$2.two.s][$1.k]({});"),
    dynamic("stored: use 56", "for (const x of args.on ? q1 : []) mcp[x.s][x.k]({});"),
    dynamic("stored: use 57", "for (const x of q1) { const y = mcp[x.s]; y[x.k]({}); }"),
    dynamic(
        "stored: use 58",
        "for (const x of q1) { const { s, n } = x; mcp[s][n?.k ?? x.k]({}); }",
    ),
    dynamic("stored: use 59", "const $1 = q1.map(({ s }: any) => mcp[s]); $1[0].got({});"),
    dynamic(
        "stored: use 60",
        "const $1: any = []; for (const { s, k } of q1) $1.push(() => mcp[s][k]({})); for (const f of $1) f();",
    ),
    dynamic("stored: use 61", "for (var { s: $1, k: $2 } of q1) ~await null, mcp[$1][$2]({});"),
];

/// Expressions whose value is the object `o1`, or a row of the tables `q1` and `q2`.
const OBJECTS: &[Construct] = &[
    dynamic("stored: name 1", "o1"),
    dynamic("stored: name 2", "(args.on ? o1 : {} as any)"),
    dynamic("stored: name 3", "(args.missing || o1)"),
    dynamic("stored: name 4", "(o1 && o1)"),
    dynamic("stored: name 5", "(0, o1)"),
    dynamic("stored: name 6", "[o1][0]"),
    dynamic("stored: name 7", "({ o: o1 }).o"),
    dynamic("stored: name 8", "((x) => x)(o1)"),
    dynamic("stored: name 9", "Object.values({ o: o1 })[0]"),
    dynamic("stored: name 10", "Object.entries({ o: o1 })[0][1]"),
    dynamic("stored: name 11", "Object.assign({}, { o: o1 }).o"),
    dynamic("stored: name 12", "a1"),
    dynamic("stored: name 13", "a2.o"),
    dynamic("stored: name 14", "Object.fromEntries([[\"o\", o1]]).o"),
    dynamic("stored: name 15", "[...[o1]][0]"),
    dynamic("stored: name 16", "({ ...{ o: o1 } }).o"),
    dynamic("stored: name 17", "((x = o1) => x)()"),
    dynamic("stored: name 18", "q1[0]"),
    dynamic("stored: name 19", "q2.one"),
    dynamic("stored: name 20", "[...q1][0]"),
    dynamic("stored: name 21", "(Object.values(q2)[0] as any)"),
    dynamic("stored: name 22", "q1.filter(() => true)[0]"),
    dynamic("stored: name 23", "q1.find((x: any) => x.k)"),
    dynamic("stored: name 24", "q1.at(0)"),
    dynamic("stored: name 25", "q1.slice(0)[0]"),
    dynamic("stored: name 26", "[...q1.entries()][0][1]"),
    dynamic("stored: name 27", "[...q1.values()][1]"),
    dynamic("stored: name 28", "(args.on ? q1 : [])[0]"),
    dynamic("stored: name 29", "q1.map((x: any) => x)[0]"),
    dynamic("stored: name 30", "q1.concat()[1]"),
    dynamic("stored: name 31", "(([x]: any) => x)(q1)"),
    dynamic("stored: name 32", "q1.reduce((a: any) => a)"),
    dynamic("stored: name 33", "q1.flatMap((x: any) => [x])[0]"),
    dynamic("stored: name 34", "((x = q1[0]) => x)()"),
    dynamic("stored: name 35", "(q1[0] ?? {})"),
    dynamic("stored: name 36", "(({ ...x }: any) => x.two)(q2)"),
    dynamic("stored: name 37", "(q1[args.n] ?? q1[1])"),
];

/// Code that may enclose a change or a use.
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

/// Generates a program that changes stored names and then uses them, or the other way round.
pub(super) fn write(seed: u64, mut random: Random) -> Program {
    let mut body = Vec::new();
    let mut names = 0;
    let first = random.chance(75);
    // At most three: a longer program is more often dynamic as a whole, and then tests nothing.
    for at in 0..2 + random.below(5) / 3 {
        let change = first == (at == 0);
        let table = if change { CHANGES } else { USES };
        let construct = random.pick(table);
        let mut text = construct.text.replace("~await", "await");
        while text.contains("@E") {
            let object = random.pick(OBJECTS).text;
            text = text.replacen("@E", object, 1);
        }
        for mark in ["$1", "$2"] {
            names += 1;
            text = text.replace(mark, &format!("v{names}"));
        }
        let (before, after) = *random.pick(AROUND);
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
    // A declaration may use earlier ones, so the last comes first.
    let mut used: String = Program { seed, resolvable: false, body: body.clone() }.source();
    for (name, declaration) in DECLARATIONS.iter().rev() {
        let is_used = used.match_indices(name).any(|(at, _)| {
            let near = |next: Option<char>| next.is_some_and(|c| c.is_ascii_alphanumeric());
            !near(used[..at].chars().next_back()) && !near(used[at + name.len()..].chars().next())
        });
        if is_used {
            used.push_str(declaration);
            let pieces = vec![Piece::Text(format!("{declaration}\n"))];
            body.insert(0, Part { pieces, ..Part::default() });
        }
    }
    Program { seed, resolvable: false, body }
}
