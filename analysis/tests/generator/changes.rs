//! Variables that are reassigned in every place where a program can assign.

use super::{Construct, later, plain};

/// The declarations at the start of such a program.
pub(super) const STATE: &str =
    "let s1: any = @u1, s2: any = @u2, s3: any = @u3, k1 = \"aa\", k2 = \"bb\", k3 = \"cc\";";

/// Reads and writes of these variables. The generator does not track their values, so it
/// expects no particular call of them.
pub(super) const CHANGES: &[Construct] = &[
    plain("state: call", "s1({});"),
    plain("state: call", "s2({}); s3({});"),
    plain("state: call by name", "mcp.fs[k1]({});"),
    plain("state: call by names", "mcp.git[`${k2}x`]({}); mcp.web[k3 + k1]({});"),
    plain("state: assign", "s1 = @u1;"),
    plain("state: assign", "s1 = s2; s2 = @u1;"),
    plain("state: assign name", "k1 = k2; k2 = \"dd\";"),
    plain("state: assign name", "k2 = k3; k3 = \"aa\";"),
    plain("state: swap", "[s1, s2, s3] = [s2, s3, s1]; [k1, k2] = [k2, k1];"),
    later("state: pattern", "({ a: s1, b: s2 = s3, c: { d: s3 } = { d: s1 } } = { a: s2 });"),
    plain("state: pattern of names", "({ k: k1, j: k2 = k3 } = { k: k2 });"),
    plain("state: rest", "[, ...[s1, s2]] = [s1, s2, s3];"),
    plain("state: if", "if (@y) { s1 = s2; k1 = k3;@S } else { s1 = s3; k1 = \"no\";@D}"),
    plain("state: if in a test", "if ((s1 = s3) && (k1 = k2)) {@S}"),
    plain("state: ternary", "s1 = @z ? s2 : (s3 = s2); k1 = @y ? k3 : (k2 = k1);"),
    plain("state: logical", "@y && (s2 = s1); @z || (k2 = k1); args.missing ?? (s3 = s2);"),
    plain("state: logical assign", "s1 &&= s2; k1 &&= k3; s2 ||= s3; k2 ??= k1;"),
    plain("state: skipped", "args.missing?.[(s1 = s2, k1 = k2)]; args.missing?.run((s2 = s3, 1));"),
    plain(
        "state: while",
        "for (let $1 = 0; $1 < 3; $1++) { s1({}); mcp.db[k1]({}); s1 = s2; s2 = s3; k1 = k2; k2 = k3;@C}",
    ),
    plain(
        "state: while, left",
        "for (let $1 = 0; $1 < 3; $1++) { s1 = s2; if ($1 === 1) break; s2 = s3; k1 = k2; if ($1 === 0) continue; k2 = k3; }",
    ),
    plain(
        "state: do",
        "let $1 = 0; do { s2 = s1; k2 = k1; if (@y) continue; s1 = s3; } while ((s1 = s2, k1 = k3, $1++ < 2));",
    ),
    plain(
        "state: for header",
        "for (let $1 = (s1 = s2, 0); (k1 = k2, $1 < 2); s2 = s3, k2 = k3, $1++) {@C}",
    ),
    plain("state: for of", "for (s1 of [s2, s3]) {@C} for (k1 of [k2, k3]) { mcp.mail[k1]({});@C}"),
    plain(
        "state: for of pattern",
        "for ({ a: s1, b: k1 = k2 } of [{ a: s3 }, { a: s2, b: k3 }]) {@C}",
    ),
    plain(
        "state: loops in loops",
        "for (const $1 of [1, 2]) { s1 = s2; for (const $2 of [1, 2]) { s2 = s3; k1 = k2; s1({}); mcp.web[k1]({});@C} k2 = k3; }",
    ),
    plain(
        "state: label",
        "$9: { s1 = s2; k1 = k2; if (@y) break $9; s1 = s3; k1 = k3;@D} s1({}); mcp.fs[k1]({});",
    ),
    plain(
        "state: label of loops",
        "$9: for (const $1 of [1, 2]) { for (const $2 of [1, 2]) { s1 = s2; k1 = k3; if ($2 === 2) continue $9; if ($1 === 2) break $9; s2 = s3; k3 = k2; } s3 = s1; }",
    ),
    plain("state: try", "try { s1 = s2; k1 = k2;@U s3 = s1; } catch { s1 = s3;@D} s1({});"),
    plain(
        "state: try, throws",
        "try { s1 = s2; k1 = k2; if (@y) throw new Error(\"x\"); s1 = s3; k1 = k3; } catch { s1({}); mcp.fs[k1]({}); s2 = s1;@S }",
    ),
    plain(
        "state: try, a function throws",
        "try { ((f) => { s1 = s2; k1 = k3; f.missing(); s1 = s3; k1 = k2; })({} as any); } catch { s1({}); mcp.fs[k1]({}); }",
    ),
    plain(
        "state: finally",
        "try { s1 = s2; k1 = k2;@U s2 = s3; } finally { s1({}); mcp.git[k1]({}); k1 = k3;@[f@S@] }",
    ),
    plain(
        "state: finally after return",
        "(() => { try { s1 = s2; k1 = k3; return 1; } finally { s1({}); mcp.git[k1]({}); s2 = s1; } })();",
    ),
    plain(
        "state: finally after break",
        "for (const $1 of [1, 2]) { try { s1 = s2; k1 = k2; if ($1 === 1) continue; break; } finally { s2 = s3; k2 = k3; } } s1({});",
    ),
    plain(
        "state: catch returns",
        "(() => { try { s1 = s2; throw new Error(\"x\"); } catch { k1 = k3; return; } finally { s3 = s1; k2 = k1; } s1 = s3; })();",
    ),
    plain(
        "state: switch",
        "switch (args.n) { case 2: s1 = s3; case 3: s1 = s2; k1 = k2;@G case 4: s2 = s1; s1({}); mcp.fs[k1]({}); break; default: s3 = s1; k1 = k3; }",
    ),
    plain(
        "state: switch tests",
        "switch (3) { case (s1 = s2, k1 = k2, 1): s3 = s1; break; default: s1({}); mcp.fs[k1]({}); break; case (s2 = s3, k2 = k3, 3): s1 = s2; k1 = k2; }",
    ),
    plain(
        "state: switch in a loop",
        "for (const $1 of [1, 2, 3]) { switch ($1) { case 1: s1 = s2; k1 = k2; continue; case 2: s2 = s3; break; default: s1({}); mcp.fs[k1]({}); } k2 = k3; }",
    ),
    plain(
        "state: closure",
        "const $1 = () => { s1 = s2; k1 = k3;@[s@G@] }; $1(); s1({}); mcp.fs[k1]({});",
    ),
    plain(
        "state: closure, later",
        "const $1 = () => { s1({}); mcp.fs[k1]({}); s2 = s3; }; s1 = s2; k1 = k2; $1(); s1 = s2; $1();",
    ),
    plain(
        "state: callback",
        "[1, 2].forEach((i) => { s1({}); mcp.fs[k1]({}); s1 = s2; k1 = k2; s2 = s3; k2 = k3; });",
    ),
    plain(
        "state: async",
        "const $1 = async () => { s1 = s2; await null; s1({}); mcp.fs[k1]({}); s2 = s3; k1 = k2; }; const $2 = $1(); s2 = s1; k1 = k3; ~await $2;",
    ),
    plain(
        "state: two at once",
        "~await Promise.all([(async () => { s1 = s2; await null; s1({}); k1 = k2; })(), (async () => { s1 = s3; await null; await null; mcp.fs[k1]({}); s2 = s1; })()]);",
    ),
    plain(
        "state: then",
        "~await Promise.resolve(1).then(() => { s1 = s2; k1 = k3; }).then(() => { s1({}); mcp.fs[k1]({}); }).finally(() => { s2 = s1; });",
    ),
    plain(
        "state: generator",
        "for (const $1 of (function* () { s1 = s2; yield 1; s1({}); k1 = k2; yield 2; mcp.fs[k1]({}); })()) { s1 = s3; k2 = k3; }",
    ),
    plain(
        "state: default param",
        "((a = (s1 = s2, k1 = k2)) => { s1({}); s2 = s3; })(); ((a = (s3 = s1)) => 1)(1 as any);",
    ),
    plain(
        "state: param",
        "((t, k) => { t({}); mcp.fs[k]({}); s1 = t; k1 = k; })(s2, k2); ((t = s3) => { t({}); t = s1; t({}); })();",
    ),
    plain(
        "state: getter",
        "({ get g() { s1 = s2; k1 = k2; return 1; } }).g; s1({}); mcp.fs[k1]({});",
    ),
    plain(
        "state: class",
        "new (class { f = (s1 = s2, 1); static s = (k1 = k2, 1); constructor() { s1({}); mcp.fs[k1]({}); s2 = s3; } })();",
    ),
    plain(
        "state: class, in order",
        "class $1 { static a = (s1 = s2, 1); static [(s2 = s3, \"b\")] = s1({}); static { k1 = k2; mcp.fs[k1]({}); } }",
    ),
    plain("state: tag", "((s, ...v) => { s1({}); s1 = v[0]; })`${(s1 = s2)}${(k1 = k2)}`;"),
    plain(
        "state: arguments in order",
        "((a, b) => { a({}); b({}); })((s1 = s2), (s2 = s1)); mcp.fs[(k1 = k2, k1)]({ k: (k1 = k3) });",
    ),
    plain(
        "state: copies",
        "const $1 = s1, $2 = k1; s1 = s2; k1 = k2; $1({}); mcp.fs[$2]({}); s3 = $1; k3 = $2;",
    ),
    plain(
        "state: shadowed",
        "{ let s1 = s2, k1 = k2; s1({}); mcp.fs[k1]({}); s1 = s3; k1 = k3; s1({}); } s1({});",
    ),
    // A variable that was never assigned names a tool, too: `undefined`.
    later(
        "state: var",
        "(() => { if (@y) { var $1 = s1, $2 = k1; } s1 = $1; mcp.fs[$2]({}); })();",
    ),
    plain(
        "state: recursion",
        "const $1 = (n: number) => { s1({}); mcp.fs[k1]({}); if (n > 0) { s1 = s2; k1 = k2; $1(n - 1); } s2 = s3; k2 = k3; }; $1(2);",
    ),
    plain(
        "state: object literal",
        "({ a: (s1 = s2), [k1]: (k1 = k2), b: s1({}), c: mcp.fs[k1]({}) });",
    ),
    plain(
        "state: delete and typeof",
        "delete ({ a: 1 } as any)[(s1 = s2, k1)]; typeof (k1 = k2); void s1({});",
    ),
];
