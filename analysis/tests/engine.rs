//! Programs that change the engine's own objects: nothing that is known of the engine holds in them, so no plan of
//! theirs claims to be complete.

use analysis::{Code, Limits, analyze};

/// Each ends in the expression that shows the change.
const CHANGES: &[(&str, &str)] = &[
    (r#"Object.prototype.zz = r.v; const a = {}.zz; delete Object.prototype.zz;"#, r#"a"#),
    (r#"Array.prototype[1] = r.v; const a = [0, , 2][1]; delete Array.prototype[1];"#, r#"a"#),
    (r#"String.prototype.shout = function () { return this + r.s; };"#, r#""a".shout()"#),
    (
        r#"Object.defineProperty(Number.prototype, "twice", { get() { return r.v; }, configurable: true });"#,
        r#"(5).twice"#,
    ),
    (
        r#"const old = Math.max; Math.max = () => r.n; const a = Math.max(1, 2); Math.max = old;"#,
        r#"a"#,
    ),
    (
        r#"const old = JSON.stringify; JSON.stringify = () => r.s; const a = JSON.stringify(1); JSON.stringify = old;"#,
        r#"a"#,
    ),
    (r#"Function.prototype.tag = r.v;"#, r#"(() => {}).tag"#),
    (
        r#"Object.defineProperties(Number.prototype, { twice: { get() { return r.v; }, configurable: true } });"#,
        r#"(5).twice"#,
    ),
    (
        r#"Object.defineProperty(Object.getPrototypeOf("a"), "own", { get() { return r.v; }, configurable: true });"#,
        r#""b".own"#,
    ),
    (r#"Reflect.set(String.prototype, "own", r.v);"#, r#""b".own"#),
    (r#"Object.assign(String.prototype, { own: r.v });"#, r#""b".own"#),
    (r#"Array.prototype.__defineGetter_("own", () => r.v);"#, r#"[1].own"#),
    (r#"Object.setPrototypeOf(Number.prototype, { own: r.v });"#, r#"(5).own"#),
    (r#"const p = new Proxy(String.prototype, {}); p.own = r.v;"#, r#""a".own"#),
    (r#"function* g() {} Object.getPrototypeOf(g.prototype).own = r.v;"#, r#"g().own"#),
    (
        r#"Object.defineProperty([].map, "own", { value: r.v, configurable: true });"#,
        r#"[].map.own"#,
    ),
    (
        r#"if (r.b) Object.prototype.pp = 1; const a = {}.pp; delete Object.prototype.pp;"#,
        r#"(a ?? 0)"#,
    ),
    (
        r#"if (r.b) Object.defineProperty(Array.prototype, 3, { get: () => 1, configurable: true }); const a = [][3] ?? 0; delete Array.prototype[3];"#,
        r#"a"#,
    ),
];

/// The same functions on the program's own objects, or without a change.
const HARMLESS: &[(&str, &str)] = &[
    (r#"const o = {}; Object.defineProperty(o, "a", { value: r.v });"#, "o.a"),
    ("const o = {}; Reflect.set(o, \"a\", r.v);", "o.a"),
    ("class A {} class B extends A {} Object.setPrototypeOf(B, class { v = 1; });", "new B().v"),
    ("const keys = Reflect.ownKeys(Array.prototype);", "keys.length"),
    ("const is = Object.prototype.hasOwnProperty.call(r, \"a\");", "is"),
    ("const above = Object.getPrototypeOf([]) === Array.prototype;", "above"),
    ("const fail = new TypeError(r.s);", "fail.message"),
];

fn analysed(change: &str, shown: &str) -> analysis::Analysis {
    let source = format!(
        "const r = await mcp.filesystem.read_1({{}});\n{change}\nawait mcp.slack.post_2({{ v: {shown} }});"
    );
    let analysis = analyze(&source, &Limits::default());
    assert!(analysis.can_run(), "{source}: {:?}", analysis.diagnostics);
    analysis
}

#[test]
fn changes_of_the_engine_make_a_program_dynamic() {
    for (change, shown) in CHANGES {
        let analysis = analysed(change, shown);
        assert!(analysis.dynamic, "{change}");
        let is_named = analysis.diagnostics.iter().any(|found| found.code == Code::DynamicGlobal);
        assert!(is_named, "{change}: {:?}", analysis.diagnostics);
    }
}

#[test]
fn the_same_functions_on_other_objects_are_followed() {
    for (change, shown) in HARMLESS {
        let analysis = analysed(change, shown);
        assert!(!analysis.dynamic, "{change}: {:?}", analysis.diagnostics);
    }
}
