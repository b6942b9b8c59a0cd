//! What a person approves is what happens, while files, folders, links, rules and the descriptions of tools change at full
//! speed.

use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::json;

use crate::support::cli::{Project, text};
use crate::support::mcp_client::{Era, StdioClient, envelope};
use crate::support::{PATIENCE, scaled};

/// The places that links lead to, and files in which a cycle leaves its number.
const PLACES: [&str; 6] =
    ["one/a.txt", "two/a.txt", "one/f.txt", "two/f.txt", "one/tool.sh", "two/tool.sh"];

/// Returns a program that changes something through links.
fn program(cycle: usize) -> String {
    let folder =
        format!("await mcp.filesystem.write_file({{ path: 'folder/a.txt', content: '{cycle}' }});");
    let file =
        format!("await mcp.filesystem.write_file({{ path: 'file.txt', content: '{cycle}' }});");
    let command = format!("await mcp.shell.exec({{ command: ['./tool', '{cycle}'] }});");
    let server = format!("await mcp.changing.put({{ value: '{cycle}' }});");
    let calls = match cycle % 5 {
        0 => folder,
        1 => file,
        2 => command,
        3 => server,
        _ => format!("{folder} {file}"),
    };
    format!("{calls} return 'done'")
}

/// Puts something in the place of a name, at once.
fn put(work: &Path, name: &str, make: impl FnOnce(&Path) -> std::io::Result<()>) {
    let new = work.join(".new");
    let _ = std::fs::remove_file(&new);
    make(&new).unwrap();
    std::fs::rename(&new, work.join(name)).unwrap();
}

/// Changes everything on the disk until `stop`; returns how often.
fn swap(work: &Path, stop: &AtomicBool) -> usize {
    let rules = |allow: &[&str]| json!({ "permissions": { "allow": allow } }).to_string();
    let mut swaps = 0;
    while !stop.load(Ordering::Relaxed) {
        swaps += 1;
        let place = if swaps % 2 == 0 { "one" } else { "two" };
        put(work, "folder", |new| symlink(place, new));
        match swaps % 3 {
            0 => put(work, "file.txt", |new| std::fs::write(new, "regular")),
            _ => put(work, "file.txt", |new| symlink(format!("{place}/f.txt"), new)),
        }
        put(work, "tool", |new| symlink(format!("{place}/tool.sh"), new));
        if swaps % 8 == 0 {
            // Nobody trusts these rules.
            let allow: &[&str] = if swaps % 16 == 0 { &["*"] } else { &[] };
            put(work, ".pml.json", |new| std::fs::write(new, rules(allow)));
        }
        std::thread::yield_now();
    }
    swaps
}

/// Runs a program and allows everything that is asked; returns the questions, and whether the program succeeded.
fn approve(pml: &mut StdioClient, code: &str) -> (Vec<String>, bool) {
    let id = pml.begin(code);
    let mut shown = Vec::new();
    loop {
        let message = pml.next_message(PATIENCE).expect("it answers");
        if message["method"] == "elicitation/create" {
            shown.push(message["params"]["message"].as_str().unwrap().to_owned());
            let allow = json!({ "action": "accept", "content": { "decision": "continue" } });
            pml.respond(&message, &allow);
        } else if message["id"] == id {
            return (shown, envelope(&message["result"])["status"] == "success");
        }
    }
}

/// P5, AP-01, AP-05: in thousands of approved runs, nothing happens at a place that was not shown.
#[test]
fn nothing_happens_that_was_not_shown() {
    let project = Project::offline().configure(&json!({
        "mcpServers": { "changing": { "command": "python3", "args": ["changing.py"] } },
    }));
    project.write("changing.py", include_str!("../../fixtures/changes_its_tools.py"));
    let work: PathBuf = project.workspace();
    for place in ["one", "two"] {
        // It leaves its argument where the script is.
        let tool = format!("{place}/tool.sh");
        project.write(
            &tool,
            "#!/bin/sh\nprintf %s \"$1\" > \"$(dirname \"$(readlink -f \"$0\")\")/log\"\n",
        );
        let executable = std::fs::Permissions::from_mode(0o755);
        std::fs::set_permissions(project.path(&tool), executable).unwrap();
    }
    // Before anything is swapped: it has to find its server in the rules that are trusted.
    let mut pml = project.stdio_with_forms(Era::Handshake);
    let stop = AtomicBool::new(false);
    let cycles = scaled(10_000);
    let (mut done, mut asked, mut put_count) = (0, 0, 0);
    let mut last_put = String::new();
    let swaps = std::thread::scope(|threads| {
        let swapping = threads.spawn(|| swap(&work, &stop));
        // Whatever happens, the other thread ends.
        let cycles = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            for cycle in 0..cycles {
                let (shown, succeeded) = approve(&mut pml, &program(cycle));
                let shown = shown.join("\n");
                for place in PLACES {
                    // A command is known by what it left.
                    let left = place.replace("tool.sh", "log");
                    let content = std::fs::read_to_string(work.join(left)).unwrap_or_default();
                    let was_shown = shown.contains(&format!("leads to `{place}`"));
                    assert!(
                        content != cycle.to_string() || was_shown,
                        "cycle {cycle} changed {place}, and this was approved: {shown}"
                    );
                }
                let put = std::fs::read_to_string(work.join("put.txt")).unwrap_or_default();
                if put == format!(r#"["put", {{"value": "{cycle}"}}]"#) {
                    let call = format!(r#"Run `changing:put` with {{"value":"{cycle}"}}"#);
                    assert!(shown.contains(&call), "cycle {cycle}, and this was approved: {shown}");
                    put_count += 1;
                } else {
                    // Nothing else was put since the last cycle that did so.
                    assert_eq!(put, last_put, "cycle {cycle}");
                }
                last_put = put;
                asked += usize::from(!shown.is_empty());
                done += usize::from(succeeded);
            }
        }));
        stop.store(true, Ordering::Relaxed);
        let swaps = swapping.join().unwrap();
        if let Err(panic) = cycles {
            std::panic::resume_unwind(panic);
        }
        swaps
    });
    // No rule of the swapped file ever counted, and a good part of the approved programs ran.
    assert_eq!(asked, cycles);
    assert!(done * 8 > cycles, "{done} of {cycles} programs succeeded");
    assert!(put_count * 8 > cycles, "{put_count} of {cycles} programs reached the server");
    assert!(swaps > cycles, "{swaps} swaps in {cycles} cycles");
    let verified = project.run(&["runs", "verify"]);
    assert!(verified.status.success(), "{}", text(&verified.stdout));
}
