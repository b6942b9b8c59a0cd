//! `pml types`: the types of tools, checked by TypeScript's own compiler.

use std::process::Command;

use serde_json::json;

use crate::support::cli::{Project, text};
use crate::support::mcp_servers::{TYPESCRIPT, npm};
use crate::support::server::Server;

/// What docs/programs.md recommends.
const TSCONFIG: &str = r#"{ "compilerOptions": { "target": "es2024", "module": "esnext", "moduleDetection": "force",
  "strict": true, "noEmit": true, "types": [] }, "include": ["mcp.d.ts", "*.ts"] }"#;

/// Compiles the programs of a project; returns the compiler's errors.
fn compile(project: &Project) -> String {
    project.write("tsconfig.json", TSCONFIG);
    let tsc = npm(TYPESCRIPT).join("node_modules/typescript/bin/tsc");
    let mut node = Command::new("node");
    let output = node.arg(tsc).args(["-p", "."]).current_dir(project.workspace()).output().unwrap();
    text(&output.stdout)
}

fn types(project: &Project, arguments: &[&str]) -> (i32, String, String) {
    let output = project.run(&[&["types"], arguments].concat());
    (output.status.code().unwrap(), text(&output.stdout), text(&output.stderr))
}

/// The tools of this machine and of the gateway have types that the compiler accepts, and that find mistakes in calls.
#[test]
fn a_compiler_checks_calls() {
    let project = Project::of(&Server::shared().tenant());
    let (code, said, warned) = types(&project, &[]);
    assert_eq!((code, &*warned), (0, ""), "{said}");
    let written = project.read("mcp.d.ts");
    for namespace in ["filesystem", "json", "sequential-thinking"] {
        assert!(written.contains(&format!("  readonly \"{namespace}\": {{\n")), "{written}");
    }
    project.write(
        "good.ts",
        "const text: string = await mcp.filesystem.read_text_file({ path: args.path });
         const data = await mcp.json.parse({ data: text });
         await mcp[\"sequential-thinking\"].sequentialthinking(
           { thought: text, nextThoughtNeeded: false, thoughtNumber: 1, totalThoughts: 1 });
         data.items.length",
    );
    assert_eq!(compile(&project), "");
    for (program, error) in [
        ("await mcp.filesystem.read_text_file({ file: 'a' })", "'file' does not exist"),
        ("await mcp.filesystem.read_text_file({ path: 1 })", "is not assignable to type 'string'"),
        ("await mcp.filesystem.read_text_file({})", "Property 'path' is missing"),
        ("await mcp.filesystem.read_text_files({ path: 'a' })", "Did you mean 'read_text_file'?"),
        ("mcp.filesystem.read_text_file({ path: 'a' }).trim()", "does not exist on type 'Promise"),
    ] {
        project.write("bad.ts", program);
        let errors = compile(&project);
        assert!(errors.starts_with("bad.ts(1,") && errors.contains(error), "{program}: {errors}");
    }
}

/// A written file is replaced only if this command wrote it. `--check` writes nothing.
#[test]
fn only_its_own_file_is_replaced() {
    let project = Project::offline().configure(&json!({
        "mcpServers": { "later": { "command": "python3", "args": ["none.py"] } },
    }));
    let (code, _, refused) = types(&project, &["--check"]);
    assert_eq!(code, 2);
    assert!(refused.contains("`mcp.d.ts` is not up to date; run `pml types`"), "{refused}");
    assert!(!project.path("mcp.d.ts").exists());

    let (code, said, warned) = types(&project, &["filesystem:read_*"]);
    assert_eq!(code, 0, "{warned}");
    assert!(said.starts_with("Wrote mcp.d.ts: "), "{said}");
    assert!(warned.contains("missing: the gateway's tools"), "{warned}");
    assert!(warned.contains("servers that have not run yet: `later`"), "{warned}");
    let written = project.read("mcp.d.ts");
    assert!(written.contains("read_text_file") && !written.contains("write_file"), "{written}");
    assert_eq!(types(&project, &["filesystem:read_*", "--check"]).0, 0);
    assert_eq!(types(&project, &["--check"]).0, 2);
    assert_eq!(types(&project, &[]).0, 0);
    assert!(project.read("mcp.d.ts").contains("write_file"));
    assert_eq!(types(&project, &["-o", "-"]).1, project.read("mcp.d.ts"));

    project.write("own.d.ts", "declare const mine: 1;\n");
    let (code, _, refused) = types(&project, &["-o", "own.d.ts"]);
    assert!(code == 2 && refused.contains("was not written by `pml types`"), "{refused}");
    assert_eq!(project.read("own.d.ts"), "declare const mine: 1;\n");
    std::os::unix::fs::symlink("own.d.ts", project.path("link.d.ts")).unwrap();
    let (code, _, refused) = types(&project, &["-o", "link.d.ts"]);
    assert!(code == 2 && refused.contains("is not a regular file"), "{refused}");
    assert_eq!(types(&project, &["-o", "none/x.d.ts"]).0, 2);
}
