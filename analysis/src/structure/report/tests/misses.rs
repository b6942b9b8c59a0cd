//! Flows and decisions that an analysis easily misses. In each program, the last call depends on the first,
//! whose result is in the variable `s`.

use super::analysed;

/// How the last call of a program depends on the first.
#[derive(Debug, Clone, Copy, PartialEq)]
enum By {
    Data,
    Decision,
    Either,
}

const ROWS: &[(By, &str)] = &[
    (By::Decision, "try { if (s.a) JSON.parse(s.b); await mcp.b.k({}); } catch {}"),
    (By::Decision, "try { JSON.parse(s.json); await mcp.b.k({}); } catch {}"),
    (
        By::Data,
        "let ok = true; try { JSON.parse(s.json); } catch { ok = false; } await mcp.b.k({ ok });",
    ),
    (By::Data, "let t = ''; try { s.x.y(); } catch (e) { t = e.message; } await mcp.b.k({ t });"),
    (By::Data, "let t = 1; try { const { a: { b } } = s; t = 2; } catch {} await mcp.b.k({ t });"),
    (By::Data, "let t = 1; try { const [x] = s.list; t = 2; } catch {} await mcp.b.k({ t });"),
    (By::Data, "let t = 1; try { for (const x of s.list) t = 2; } catch {} await mcp.b.k({ t });"),
    (
        By::Data,
        "let v = 'low'; if (s.n > 40) v = 'high'; const post = async () => mcp.b.k({ v }); await post();",
    ),
    (By::Either, "const h = { a: () => mcp.b.k({ x: 1 }), b: () => 2 }; await h[s.kind]();"),
    (By::Data, "const f = () => 1, g = () => 2; const v = (s.ok ? f : g)(); await mcp.b.k({ v });"),
    (
        By::Data,
        "class A { v() { return 1; } } class B { v() { return 2; } } const o = new (s.ok ? A : B)(); await mcp.b.k({ v: o.v() });",
    ),
    (By::Data, "let f; if (s.ok) f = () => 1; await mcp.b.k({ v: f?.() });"),
    (By::Data, "let f = () => 1; if (s.ok) f = () => 2; await mcp.b.k({ v: f() });"),
    (
        By::Data,
        "const rows = [{ v: 1 }, { v: 2 }]; rows.find((r) => r.v === s.n).v = 'hit'; await mcp.b.k({ rows });",
    ),
    (By::Data, "const x = [], y = []; (s.ok ? x : y).push(1); await mcp.b.k({ x });"),
    (
        By::Data,
        "const m = new Map([['a', { v: 1 }]]); m.get('a').v = s.n; await mcp.b.k({ v: m.get('a').v });",
    ),
    (
        By::Data,
        "class R { text = ''; async load() { this.text = s.text; await this.send(); } async send() { await mcp.b.k({ text: this.text }); } } await new R().load();",
    ),
    (
        By::Data,
        "class P { get() { return 1; } run() { return this.get(); } } class Q extends P { get() { return s.n; } } await mcp.b.k({ v: new Q().run() });",
    ),
    (
        By::Data,
        "class P { m() { return s.n; } } class Q extends P { m() { return super.m(); } } await mcp.b.k({ v: new Q().m() });",
    ),
    (
        By::Data,
        "const o = { v: s.n, get() { return this.v; } }; const g = o.get.bind(o); await mcp.b.k({ v: g() });",
    ),
    (By::Data, "function f() { return this.v; } await mcp.b.k({ v: f.call({ v: s.n }) });"),
    (By::Data, "function f(a, b) { return b; } await mcp.b.k({ v: f.apply(null, [1, s.n]) });"),
    (By::Data, "const o = { get v() { return s.n; } }; await mcp.b.k({ v: o.v });"),
    (By::Data, "const o = { get v() { return s.n; } }; await mcp.b.k({ o });"),
    (
        By::Data,
        "const o = {}; const p = Promise.resolve(o); (await p).v = s.n; await mcp.b.k({ o });",
    ),
    (By::Data, "const v = [1, 2].reduce((a, x) => a + x * s.n, 0); await mcp.b.k({ v });"),
    (By::Data, "function* g() { yield s.n; } for (const v of g()) await mcp.b.k({ v });"),
    (
        By::Data,
        "function* g() { yield 1; } const it = g(); if (s.ok) it.next(); await mcp.b.k({ v: it.next().done });",
    ),
    (By::Data, "try { throw s; } catch (e) { await mcp.b.k({ e }); }"),
    (By::Data, "const f = (x = s.n) => x; await mcp.b.k({ v: f() });"),
    (By::Data, "const fs = []; fs.push(() => s.n); await mcp.b.k({ v: fs[0]() });"),
    (By::Data, "let n = 0; s.text.replace(/a/g, () => { n++; return ''; }); await mcp.b.k({ n });"),
    (By::Data, "let n = 0; Array.from({ length: s.n }, () => n++); await mcp.b.k({ n });"),
    (
        By::Data,
        "let n = 0; [1, 2, 3].some((x) => { n++; return x === s.n; }); await mcp.b.k({ n });",
    ),
    (By::Data, "let n = 0; s.list.sort(() => n++); await mcp.b.k({ n });"),
    (
        By::Data,
        "const l = [1]; for (const x of l) { if (l.length < s.n) l.push(x); } await mcp.b.k({ n: l.length });",
    ),
    (By::Data, "const re = /a/g; re.test(s.text); await mcp.b.k({ v: re.test('aaa') });"),
    (
        By::Data,
        "let seen; const o = { set v(x) { seen = x; } }; o.v = s.n; await mcp.b.k({ seen });",
    ),
    (By::Data, "const o = {}; Object.assign(o, { v: s.n }); await mcp.b.k({ o });"),
    (By::Data, "const o = { v: 1 }; if (s.ok) delete o.v; await mcp.b.k({ o });"),
    (By::Data, "const p = new Proxy({}, { get: () => s.n }); await mcp.b.k({ v: p.x });"),
    (By::Either, "const t = setTimeout(() => { mcp.b.k({}); }, 1); if (s.ok) clearTimeout(t);"),
    (
        By::Data,
        "const { promise, resolve } = Promise.withResolvers(); resolve(s.n); await mcp.b.k({ v: await promise });",
    ),
    (By::Data, "const v = await new Promise((done) => done(s.n)); await mcp.b.k({ v });"),
    (
        By::Data,
        "let v = 'low'; const p = (async () => { await 0; v = s.n; })(); v = 'x'; await p; await mcp.b.k({ v });",
    ),
    (By::Data, "await mcp.b.k({ path: 'notes.txt', toJSON() { return { path: s.n }; } });"),
    (
        By::Data,
        "const o = { l: [] }; const add = o.l.push.bind(o.l); add(s.n); await mcp.b.k({ l: o.l });",
    ),
    (By::Data, "const { [s.key]: one } = { a: 1, b: 2 }; await mcp.b.k({ one });"),
    (By::Data, "let v = 0; for (let i = 0; i < s.n; i++) v = i; await mcp.b.k({ v });"),
    (By::Data, "let v = 0; while (true) { v++; if (v > s.n) break; } await mcp.b.k({ v });"),
    (By::Data, "let v = 1; switch (s.k) { case 1: v = 2; } await mcp.b.k({ v });"),
    (By::Data, "let v = 1; out: { if (s.ok) break out; v = 2; } await mcp.b.k({ v });"),
    (By::Data, "const f = () => { if (s.ok) return 1; return 2; }; await mcp.b.k({ v: f() });"),
    (By::Data, "const f = (n) => (n <= 0 ? s.n : f(n - 1)); await mcp.b.k({ v: f(3) });"),
    (
        By::Data,
        "let v = 1; try { if (s.ok) throw 1; } catch { v = 2; } finally { v += 1; } await mcp.b.k({ v });",
    ),
    (By::Data, "const a = [1, 2]; a[s.i] = 3; await mcp.b.k({ v: a[0] });"),
    (By::Data, "const v = `${{ toString() { return s.n; } }}`; await mcp.b.k({ v });"),
    (By::Data, "const set = new Set(); if (s.ok) set.add(1); await mcp.b.k({ v: set.has(1) });"),
    (By::Data, "const v = s.ok && 1; await mcp.b.k({ v });"),
    (By::Data, "const v = s?.a?.b ?? 1; await mcp.b.k({ v });"),
    (
        By::Data,
        "const c = (x) => { let n = x; return () => n; }; const a = c(s.n); c(1); await mcp.b.k({ v: a() });",
    ),
    (
        By::Data,
        "const r = await Promise.allSettled([mcp.c.x({ s })]); const t = s.a; await mcp.b.k({ v: [t].concat(r) });",
    ),
    (By::Decision, "if (!s.ok) return; await mcp.b.k({});"),
    (
        By::Decision,
        "const go = async () => { if (s.ok) throw new Error('x'); }; await go().catch(() => mcp.b.k({}));",
    ),
    (
        By::Decision,
        "const go = async () => { if (s.ok) throw new Error('x'); }; await go(); await mcp.b.k({});",
    ),
    (
        By::Decision,
        "const go = async () => { if (s.ok) throw new Error('x'); }; const p = go(); await p; await mcp.b.k({});",
    ),
    (By::Data, "const o = {}; if (s.ok) o.x = 1; await mcp.b.k({ n: Object.keys(o).length });"),
    (By::Data, "const o = {}; if (s.ok) o.x = 1; await mcp.b.k({ n: 'x' in o });"),
    (By::Data, "const o = {}; o[s.key] = 1; await mcp.b.k({ n: Object.keys(o) });"),
    (By::Data, "const l = [3, 2, 1]; l.sort((a, b) => s[a] - s[b]); await mcp.b.k({ l });"),
    (By::Data, "const l = []; for (const x of s.list) l.push(1); await mcp.b.k({ n: l.length });"),
    (By::Data, "let n = 0; const inc = () => { n++; }; if (s.ok) inc(); await mcp.b.k({ n });"),
    (
        By::Data,
        "let n = 0; await Promise.all(s.list.map(async (x) => { n += x; })); await mcp.b.k({ n });",
    ),
    (
        By::Data,
        "const cache = new Map(); const get = (k) => { if (!cache.has(k)) cache.set(k, s.n); return cache.get(k); }; await mcp.b.k({ v: get('a') });",
    ),
    (
        By::Data,
        "const e = { h: [], on(f) { this.h.push(f); }, emit(x) { this.h.forEach((f) => f(x)); } }; let v; e.on((x) => { v = x; }); e.emit(s.n); await mcp.b.k({ v });",
    ),
    (
        By::Decision,
        "const e = { h: [], on(f) { this.h.push(f); } }; e.on(() => mcp.b.k({})); if (s.ok) await e.h[0]();",
    ),
    (
        By::Data,
        "async function* g() { for (const x of s.list) yield x; } for await (const v of g()) await mcp.b.k({ v });",
    ),
    (By::Data, "const [a = s.n] = []; await mcp.b.k({ a });"),
    (By::Data, "let v; ({ v } = s); await mcp.b.k({ v });"),
    (By::Data, "let v = 1; v ||= s.n; v &&= s.m; await mcp.b.k({ v });"),
    (By::Data, "const o = Object.fromEntries([['a', s.n]]); await mcp.b.k({ v: o.a });"),
    (By::Data, "const o = structuredClone(s); await mcp.b.k({ v: o.a });"),
    (
        By::Data,
        "class E extends Error { constructor(m) { super(m); this.code = s.n; } } try { throw new E('x'); } catch (e) { await mcp.b.k({ c: e.code }); }",
    ),
    (By::Data, "const tag = (t, ...v) => v[0]; await mcp.b.k({ v: tag`a${s.n}` });"),
    (By::Data, "const k = { [s.key]: 1 }; await mcp.b.k({ k });"),
    (
        By::Data,
        "const u = new URL('https://x.y'); u.searchParams.set('q', s.n); await mcp.b.k({ url: String(u) });",
    ),
    (By::Data, "const d = new Date(s.at); await mcp.b.k({ d: d.toISOString() });"),
    (By::Data, "const v = await mcp.c.x({}).then(() => s.n); await mcp.b.k({ v });"),
    (By::Data, "const v = await Promise.race([s.a, 1]); await mcp.b.k({ v });"),
    // Names that resemble internal names of the analysis.
    (By::Data, "const o = { '%proto': s.n }; await mcp.b.k({ v: o['%proto'] });"),
    (By::Data, "const o = { '%order': s.n }; await mcp.b.k({ o });"),
    (By::Data, "const o = {}; o['%length'] = s.n; await mcp.b.k({ v: Object.values(o) });"),
    (By::Data, "const o = { 'get:x': 1, 'set:x': s.n }; await mcp.b.k({ o });"),
    (By::Data, "const o = { '@@iterator': s.n }; await mcp.b.k({ v: o['@@iterator'] });"),
    (By::Data, "class A { #x = 1; } const o = { '#x': s.n }; await mcp.b.k({ o });"),
    (By::Data, "const k = '%' + 'elem'; const o = { [k]: s.n }; await mcp.b.k({ v: o });"),
    (By::Data, "const v = await Promise.reject(s.n).catch((e) => e); await mcp.b.k({ v });"),
];

#[test]
fn finds_flows_that_are_easily_missed() {
    let mut missed = Vec::new();
    for (by, row) in ROWS {
        let source = format!("const s = await mcp.a.secret({{}});\n{row}");
        let Some(report) = analysed(&source) else { panic!("{row} can be analysed") };
        if report.dynamic {
            // An incomplete plan would be sound, but is only needed for proxies.
            if !row.contains("Proxy") {
                missed.push(format!("dynamic: {row}"));
            }
            continue;
        }
        let last = report.tasks.iter().rfind(|task| task.tool.as_str() == "b:k");
        let secret = report
            .tasks
            .iter()
            .position(|task| task.tool.as_str() == "a:secret")
            .unwrap_or(usize::MAX);
        let (data, decides) = last.map_or((false, false), |task| {
            (task.data.contains(&secret), task.decided.contains(&secret))
        });
        let is_listed = match by {
            By::Data => data,
            By::Decision => decides,
            By::Either => data || decides,
        };
        if !is_listed {
            missed.push(format!("{by:?}: {row}"));
        }
    }
    assert!(missed.is_empty(), "{} of {}:\n{}", missed.len(), ROWS.len(), missed.join("\n"));
}

/// Programs without a flow from the first call to the last.
const FREE: &[&str] = &[
    "await mcp.b.k({ v: 1 });",
    "let v = s.n; v = 1; await mcp.b.k({ v });",
    "const o = { v: 1 }; await mcp.b.k({ o }); o.v = s.n;",
    "const a = { v: s.n }, b = { v: 1 }; await mcp.b.k({ b });",
    "const c = (x) => ({ x }); const a = c(s.n), b = c(1); await mcp.b.k({ b });",
    "const l = [1]; await mcp.b.k({ l }); l.push(s.n);",
    "if (s.ok) console.log(1); await mcp.b.k({ v: 1 });",
    "for (const x of s.list) console.log(x); await mcp.b.k({ v: 1 });",
    "try { console.log(s.x.y); } catch {} await mcp.b.k({ v: 1 });",
    "const f = () => s.n; await mcp.b.k({ v: 1 });",
    "class A { v = s.n; w = 1; } await mcp.b.k({ w: new A().w });",
    "out: { if (s.ok) break out; console.log(1); } await mcp.b.k({ v: 1 });",
];

#[test]
fn invents_no_flows() {
    let mut invented = Vec::new();
    for row in FREE {
        let source = format!("const s = await mcp.a.secret({{}});\n{row}");
        let Some(report) = analysed(&source) else { panic!("{row} can be analysed") };
        let task = report.tasks.iter().find(|task| task.tool.as_str() == "b:k");
        if report.dynamic
            || task.is_none_or(|task| task.data.contains(&0) || task.decided.contains(&0))
        {
            invented.push(*row);
        }
    }
    assert!(invented.is_empty(), "{}:\n{}", invented.len(), invented.join("\n"));
}
