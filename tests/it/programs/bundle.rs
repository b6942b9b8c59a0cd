//! Programs of several files: bundling by `pml`, publication, calls, and which imports are refused.

use std::os::unix::fs::symlink;

use serde_json::{Value, json};

use crate::support::cli::{Project, text};
use crate::support::expect::success;
use crate::support::http::HttpMcp;
use crate::support::http::get;
use crate::support::mcp_client::Era;
use crate::support::server::{Server, Tenant};

fn author() -> Tenant {
    Server::shared().tenant_with_rights("execute,read,publish")
}

/// Writes a capability of three files.
fn write_tree(project: &Project) {
    let folder = project.path("caps/lib");
    std::fs::create_dir_all(folder).unwrap();
    project.write(
        "caps/price.ts",
        "/** Says a price. */\nimport { sum } from \"./lib/sum.ts\";\nimport unit, { type Unit } from \"./lib/unit\";\n\nconst prices: number[] = args.prices;\nreturn `${await sum(prices)} ${unit satisfies Unit}`;\n",
    );
    project.write(
        "caps/lib/sum.ts",
        "import unit from './unit.js'\nexport async function sum(values: number[]) {\n  if (!unit) throw new Error('no unit')\n  return await mcp.math.eval({ expression: values.join(' + ') })\n}\n",
    );
    project.write("caps/lib/unit.ts", "export type Unit = string\nexport default 'EUR'\n");
}

const BUNDLED: &str = "/** Says a price. */
// ./lib/unit.ts
type Unit = string
const unit_default = 'EUR';
// ./lib/sum.ts
async function sum(values: number[]) {
  if (!unit_default) throw new Error('no unit')
  return await mcp.math.eval({ expression: values.join(' + ') })
}
// ./price.ts

const prices: number[] = args.prices;
return `${await sum(prices)} ${unit_default satisfies Unit}`;
";

#[test]
fn several_files_are_published_as_one_bundle() {
    let author = author();
    let project = Project::of(&author);
    write_tree(&project);
    let publish = ["publish", "caps/price.ts", "--name", "shop.price", "--json"];
    let made = project.run(&publish);
    let made: Value = serde_json::from_slice(&made.stdout).unwrap_or_else(|_| panic!("{made:?}"));
    assert_eq!(made["calls"], json!(["math:eval"]), "{made:#}");
    let bearer = format!("Bearer {}", author.key);
    let module = get(
        &format!("{}/mcp/shop:price", author.url),
        &[("authorization", &bearer), ("accept", "*/*")],
    );
    let module = String::from_utf8(module.body).unwrap();
    assert_eq!(module.split_once('\n').unwrap().1, BUNDLED, "the published program");
    let done = HttpMcp::new(&author, Era::Stateless)
        .execute("return await mcp.shop.price({ prices: [1, 2, 39] })");
    assert_eq!(success(&done), "42 EUR");
    // Publishing the same files from another folder gives the same version.
    let again = project.run(&publish);
    let again: Value = serde_json::from_slice(&again.stdout).unwrap();
    assert_eq!(again["integrity"], made["integrity"]);
    let other = Project::of(&author);
    write_tree(&other);
    let again = other.run(&publish);
    let again: Value = serde_json::from_slice(&again.stdout).unwrap();
    assert_eq!(again["integrity"], made["integrity"]);
}

/// `exec`, `analyze` and `plan` accept several files; errors name the file and the line in it.
#[test]
fn several_files_can_be_run_planned_and_analyzed() {
    let project = Project::of(&author());
    write_tree(&project);
    let ran = project.run(&["exec", "caps/price.ts", "--args", "{\"prices\":[40,2]}"]);
    assert_eq!(text(&ran.stdout).trim(), "42 EUR", "{ran:?}");
    let report = project.run(&["analyze", "caps/price.ts", "--json"]);
    let report: Value = serde_json::from_slice(&report.stdout).unwrap();
    assert_eq!((&report["tools"], &report["dynamic"]), (&json!(["math:eval"]), &json!(false)));
    let whole = project.run(&["analyze", "caps/price.ts", "--bundle"]);
    assert_eq!(text(&whole.stdout), BUNDLED, "{whole:?}");
    let planned = project.run(&["plan", "caps/price.ts"]);
    assert!(text(&planned.stdout).contains("math:eval"), "{planned:?}");

    project.write("caps/lib/unit.ts", "\n\nexport default args.unit.name as string\n");
    let failed = project.run(&["exec", "caps/price.ts", "--args", "{\"prices\":[1]}"]);
    assert_eq!(failed.status.code(), Some(1), "{failed:?}");
    // The missing `Unit` is a type, which is erased.
    assert!(!text(&failed.stderr).contains("has no export"), "{failed:?}");
    let stderr = text(&failed.stderr);
    assert!(stderr.contains("./lib/unit.ts, line 3, column"), "{stderr}");
    let failed = project.run(&["exec", "caps/price.ts", "--args", "{\"prices\":[1]}", "--json"]);
    let failed: Value = serde_json::from_slice(&failed.stdout).unwrap();
    assert_eq!(failed["details"]["origin"]["file"], "./lib/unit.ts", "{failed:#}");
    assert_eq!(failed["details"]["origin"]["line"], 3);

    project.write("caps/lib/unit.ts", "enum Unit { A }\nexport default 'EUR'\n");
    let refused = project.run(&["analyze", "caps/price.ts"]);
    assert_eq!(refused.status.code(), Some(2), "{refused:?}");
    let stderr = text(&refused.stderr);
    assert!(stderr.contains("./lib/unit.ts, line 1, column 1"), "{stderr}");
    project.write("caps/lib/unit.ts", "export default args.nothing.there(mcp[args.x].y())\n");
    let report = project.run(&["analyze", "caps/price.ts", "--json"]);
    let report: Value = serde_json::from_slice(&report.stdout).unwrap();
    assert_eq!(report["diagnostics"][0]["origin"]["file"], "./lib/unit.ts", "{report:#}");
    let warned = text(&project.run(&["analyze", "caps/price.ts"]).stderr);
    assert!(
        warned.contains("(./lib/unit.ts, line 1, column") && warned.contains("DYNAMIC_NAME"),
        "{warned}"
    );
}

/// AN-09: an import can read files in the workspace and nothing else.
#[test]
fn imports_are_limited_to_files_in_the_workspace() {
    let project = Project::offline();
    let outside = project.home().join("secret.ts");
    std::fs::write(&outside, "export const secret = 'S3CRET'").unwrap();
    project.write("fine.ts", "export const secret = 1");
    std::fs::create_dir(project.path("lib")).unwrap();
    std::fs::create_dir(project.path("folder.ts")).unwrap();
    symlink(&outside, project.path("link.ts")).unwrap();
    symlink(project.home(), project.path("up")).unwrap();
    symlink("fine.ts", project.path("alias.ts")).unwrap();
    let made = std::process::Command::new("mkfifo").arg(project.path("fifo.ts")).status().unwrap();
    assert!(made.success());
    project.write("huge.ts", vec![b' '; 8 << 20]);
    project.write("bytes.ts", [b'/', b'/', 0xff, b'\n']);
    project.write("nested.ts", "(".repeat(20_000));
    project.write("self.ts", "import './self.ts'\nexport const secret = 1");
    std::fs::create_dir(project.path(".pml")).ok();
    project.write(".pml/token.ts", "export const secret = 'S3CRET'");

    let absolute = outside.to_str().unwrap().to_owned();
    let analyze = |specifier: &str| {
        project.write("main.ts", format!("import {{ secret }} from {specifier:?}\nreturn secret"));
        let output = project.run(&["analyze", "main.ts", "--json"]);
        let shown = text(&output.stdout) + &text(&output.stderr);
        assert!(!shown.contains("S3CRET"), "{specifier}: {shown}");
        (output.status.code().unwrap(), shown)
    };
    for (specifier, why) in [
        (absolute.as_str(), "absolute"),
        ("../secret.ts", "workspace"),
        ("./lib/../../secret.ts", "workspace"),
        ("./link.ts", "outside the workspace"),
        ("./up/secret.ts", "outside the workspace"),
        ("./fifo.ts", "FIFO"),
        ("./folder.ts", "directory"),
        ("./huge.ts", "more than 65536 bytes"),
        ("./bytes.ts", "not UTF-8"),
        ("./nested.ts", "TOO_COMPLEX"),
        ("./self.ts", "circular import: ./self.ts → ./self.ts"),
        ("./main.ts", "circular import: ./main.ts → ./main.ts"),
        ("./.pml/token.ts", "protected"),
        ("./nowhere", "no such file"),
        ("./lib", "no such file"),
        ("./fine.ts/x.ts", "no such file"),
        ("secret", "is a package"),
        ("node:fs", "another runtime"),
        ("https://127.0.0.1:1/x.ts", "is a URL"),
    ] {
        let (code, shown) = analyze(specifier);
        assert_eq!(code, 2, "{specifier}: {shown}");
        assert!(shown.contains(why), "{specifier}: {shown}");
        let report: Value = serde_json::from_str(&shown).unwrap_or_default();
        let origin = &report["details"]["origin"];
        let file = origin["file"].as_str().unwrap_or_default();
        assert!(file.ends_with(".ts") && origin["line"] == 1, "{specifier}: {shown}");
        assert!(report["details"]["column"].is_u64(), "{specifier}: {shown}");
    }
    // A link within the workspace is followed.
    let (code, shown) = analyze("./alias.ts");
    assert_eq!(code, 0, "{shown}");

    let many: String = (0..10_000).map(|n| format!("import './f{n}.ts'\n")).collect();
    project.write("many.ts", &many);
    assert_eq!(project.run(&["analyze", "many.ts"]).status.code(), Some(2));
    // An entry file outside the workspace can import files of its own folder.
    let elsewhere = project.home().join("elsewhere.ts");
    for (specifier, code) in [("./secret.ts", 0), ("../work/fine.ts", 2)] {
        let entry = format!("import {{ secret }} from '{specifier}'\nreturn secret");
        std::fs::write(&elsewhere, entry).unwrap();
        let output = project.run(&["analyze", elsewhere.to_str().unwrap()]);
        assert_eq!(output.status.code(), Some(code), "{specifier}: {output:?}");
    }
    // A program on stdin has no folder, so it cannot import.
    let (_, code) = project.analyze("import { secret } from './fine.ts'\nreturn secret");
    assert_eq!(code, 2);
}

/// A published capability records the versions of the MCP servers that it uses.
#[test]
fn a_capability_pins_the_servers_it_uses() {
    let author = author();
    let project = Project::of(&author);
    project.write("facts.ts", "export const read = () => mcp.memory.read_graph({})\n");
    project.write(
        "recall.ts",
        "/** Recalls. */\nimport { read } from './facts.ts'\nawait mcp.filesystem.read_text_file({ path: 'a' })\nawait mcp.math.eval({ expression: '1' })\nreturn read()\n",
    );
    let made = project.run(&["publish", "recall.ts", "--name", "notes.recall", "--json"]);
    let made: Value = serde_json::from_slice(&made.stdout).unwrap_or_else(|_| panic!("{made:?}"));
    assert_eq!(made["routing"], "client");
    let bearer = format!("Bearer {}", author.key);
    let read = |name: &str| {
        let headers = [("authorization", bearer.as_str()), ("accept", "application/json")];
        get(&format!("{}/mcp/{name}", author.url), &headers).json()
    };
    let entry = read("notes:recall");
    let servers = [read("filesystem"), read("memory")];
    let deps = entry["mcp_deps"].as_array().unwrap_or_else(|| panic!("{entry:#}"));
    assert_eq!(deps.len(), 2, "{entry:#}");
    for (dep, server) in deps.iter().zip(&servers) {
        assert_eq!(dep["integrity"], server["integrity"]);
        assert_eq!(dep["fqdn"], server["fqdn"]);
        assert_eq!(dep["type"], "stdio");
        let package = server["install"]["args"].to_string();
        let version = dep["version"].as_str().unwrap();
        assert!(package.contains(&format!("@{version}\"")), "{dep} {package}");
    }
    assert_eq!((&deps[0]["name"], &deps[1]["name"]), (&json!("filesystem"), &json!("memory")));
    // The first line of the module is the entry. Only direct dependencies are listed, not those of called capabilities.
    let headers = [("authorization", bearer.as_str()), ("accept", "*/*")];
    let module = get(&format!("{}/mcp/notes:recall", author.url), &headers);
    let module = String::from_utf8(module.body).unwrap();
    let meta = module.lines().next().unwrap().strip_prefix("// __meta__:").unwrap();
    assert_eq!(serde_json::from_str::<Value>(meta).unwrap(), entry);
    project.write(
        "twice.ts",
        "/** Recalls twice. */\nreturn [await mcp.notes.recall({}), await mcp.notes.recall({})]",
    );
    assert!(project.run(&["publish", "twice.ts", "--name", "notes.twice"]).status.success());
    assert!(read("notes:twice").get("mcp_deps").is_none());

    let package = HttpMcp::new(&author, Era::Stateless).with_package();
    let handed = package.execute("return await mcp.notes.twice({})");
    assert_eq!(handed["status"], "execute_locally", "{handed:#}");
    assert_eq!(handed["tools_used"][0]["integrity"], read("notes:twice")["integrity"]);
    assert_eq!(
        handed["tools_used"][0]["tools"],
        json!(["filesystem:read_text_file", "math:eval", "memory:read_graph", "notes:recall"])
    );
}

/// The bundle gives the same result as Node.js with the separate modules.
#[test]
fn a_bundle_behaves_like_separate_modules_in_node() {
    let project = Project::of(&author());
    let files = [
        (
            "count.mjs",
            "export let count = 0\nexport function next(by = 1) { return count += by }\nexport { count as total, next as default }",
        ),
        (
            "shadow.mjs",
            "import add, { count } from './count.mjs'\nconst add_2 = 100, URL = 'mine'\nexport const inner = (count) => { const add_2 = count; { let add = 5; count += add } return [count, add_2] }\nexport function outer() { add(add_2); return [count, typeof URL, inner(1)] }\nexport { URL }",
        ),
        (
            "stars.mjs",
            "export * from './shadow.mjs'\nexport * as counting from './count.mjs'\nexport const own = { add_2: 1, URL: 2, ...{ count: 3 } }\nlog.push('stars')\nvar log",
        ),
        (
            "shapes.mjs",
            "const name = 'shapes'\nexport default class Shape { static kind = name; name = name; get [name]() { return this.name } }\nexport class Round extends Shape { constructor() { super(); this.round = new.target === Round } }\nexport const make = (kind = Round, { name: inner = name } = {}) => new kind()[inner]",
        ),
        (
            "later.mjs",
            "export const order = []\nawait null\norder.push('later')\nexport const { a, b: [first, ...rest], ...others } = { a: 1, b: [2, 3, 4], c: 5 }",
        ),
        (
            "again.mjs",
            "import { order } from './later.mjs'\norder.push('again')\nlabel: for (const order of [1, 2]) { if (order) continue label }\nexport var hoisted = typeof before\nvar before\nfunction name() { return `${name.length}${hoisted}` }\nexport { name as default }",
        ),
    ];
    for (name, text) in files {
        // `log` is used before its declaration, which fails in both; the replacement is valid.
        project.write(
            name,
            text.replace("log.push('stars')\nvar log", "var log = []\nlog.push('stars')"),
        );
    }
    let body = "import next, { count, total } from './count.mjs'
import { outer, URL as url, own, counting } from './stars.mjs'
import Shape, * as shapes from './shapes.mjs'
import { order, a, first, rest, others } from './later.mjs'
import again from './again.mjs'
import * as counted from './count.mjs'
next(); next(2);
const before = 'entry', name = [count], add_2 = own.add_2;
function nested(next, { count: inner } = { count }) { var total = inner; return [next, total, counted.count] }
const out = [outer(), count, total, url, own, counting.count, new URL('http://a/b').host, Shape.kind, new shapes.Round().round,
  shapes.make(), shapes.make(Shape, { name: 'name' }), new shapes.default().shapes, order, a, first, rest, others,
  again(), nested(1), before, name, add_2, { count, next: typeof next, again: again.call(null) }, [1].map((count) => count + total)];
";
    project.write("main.mjs", format!("{body}return out"));
    project.write("node.mjs", format!("{body}console.log(JSON.stringify(out))"));
    let ours = project.run(&["exec", "main.mjs"]);
    let node = std::process::Command::new("node")
        .arg("node.mjs")
        .current_dir(project.workspace())
        .output()
        .unwrap();
    assert!(node.status.success(), "{}", text(&node.stderr));
    let ours: Value =
        serde_json::from_slice(&ours.stdout).unwrap_or_else(|_| panic!("{}", text(&ours.stderr)));
    assert_eq!(ours, serde_json::from_slice::<Value>(&node.stdout).unwrap());
}
