//! `--policy FILE`: a policy for one run, which only restricts what the policy of the project allows.

use std::process::Stdio;

use serde_json::{Value, json};

use crate::support::cli::{Project, text};
use crate::support::expect::{failure, success};
use crate::support::{PATIENCE, poll};

/// Creates a project in which rules allow everything, with this policy or none.
fn project(policy: Option<Value>) -> Project {
    let mut config = json!({ "permissions": { "allow": ["*"] } });
    if let Some(policy) = policy {
        config["policy"] = policy;
    }
    let project = Project::offline().configure(&config);
    project.write("src/a.txt", "a");
    project.write("notes.md", "notes");
    project.write("ok/first.txt", "");
    project
}

/// Runs a program under a policy file.
#[track_caller]
fn exec_under(project: &Project, policy: &str, program: &str) -> (Value, i32) {
    project.write("p.yaml", policy);
    project.write("program.ts", program);
    answer(project, &["exec", "program.ts", "--policy", "p.yaml", "--json"])
}

#[track_caller]
fn answer(project: &Project, arguments: &[&str]) -> (Value, i32) {
    let output = project.run(arguments);
    let answer = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|error| panic!("{error}: {}", text(&output.stderr)));
    (answer, output.status.code().unwrap())
}

fn read(path: &str) -> String {
    format!("return await mcp.filesystem.read_text_file({{ path: '{path}' }})")
}

fn write(path: &str, content: &str) -> String {
    format!("return await mcp.filesystem.write_file({{ path: '{path}', content: '{content}' }})")
}

const READS: &str = "filesystem:\n  read:\n    allow: ['**']\n    deny: [src/**]\n";

/// What the file denies is denied, with a reason that names the file; what it allows is not.
#[test]
fn a_policy_file_restricts_a_run() {
    for own in [None, Some(json!({ "filesystem": { "read": { "allow": ["**"] } } }))] {
        let project = project(own);
        let (done, code) = exec_under(&project, READS, &read("notes.md"));
        assert_eq!((success(&done), code), (&json!("notes"), 0));
        let (denied, code) = exec_under(&project, READS, &read("src/a.txt"));
        let message = failure(&denied, "POLICY_DENIED");
        assert!(
            message.contains("the policy does not allow `src/a.txt`: `filesystem.read.deny` in `p.yaml` has `src/**`"),
            "{message}"
        );
        assert_eq!((code, &denied["error_number"]), (3, &json!(1002)));
        let (denied, _) = exec_under(&project, READS, &write("new.txt", "x"));
        failure(&denied, "POLICY_DENIED");
        assert!(!project.path("new.txt").exists());
        // Only that run.
        let (done, code) = answer(&project, &["exec", "program.ts", "--json"]);
        assert_eq!(code == 0, project.path("new.txt").exists(), "{done}");
        let (done, _) = project.exec(&read("src/a.txt"));
        assert_eq!(success(&done), "a");
    }
}

/// A denied step of a plan ends the run, and no later step is made.
#[test]
fn a_step_of_a_plan_is_denied_by_the_file() {
    let project = project(None);
    project.write(
        "plan.yaml",
        "steps:\n  - tool: fs.read\n    args: { path: notes.md }\n  - tool: fs.write\n    args: { path: no.txt, content: x }\n  - tool: fs.write\n    args: { path: ok/last.txt, content: x }\n",
    );
    let policy = |write: &str| {
        format!("filesystem:\n  read: {{ allow: ['**'] }}\n  write: {{ allow: [{write}] }}\n")
    };
    project.write("p.yaml", policy("ok/**"));
    let arguments = ["exec", "plan.yaml", "--policy", "p.yaml", "--json"];
    let (denied, code) = answer(&project, &arguments);
    let message = failure(&denied, "POLICY_DENIED");
    assert!(
        message.contains("`filesystem.write.allow` in `p.yaml` has no pattern for it"),
        "{message}"
    );
    assert_eq!((code, &denied["details"]["line"]), (3, &json!(4)), "{denied:#}");
    assert!(!project.path("no.txt").exists() && !project.path("ok/last.txt").exists());
    // The plan says so before.
    let plan = ["plan", "plan.yaml", "--offline", "--policy", "p.yaml"];
    let (shown, code) = answer(&project, &[&plan[..], &["--json"]].concat());
    assert_eq!(code, 0, "{shown:#}");
    let refused = shown["denied"].as_array().unwrap();
    assert_eq!(refused.len(), 1, "{shown:#}");
    assert_eq!(
        (&refused[0]["task"], &refused[0]["error_code"]),
        (&json!("t2"), &json!("POLICY_DENIED"))
    );
    let shown = text(&project.run(&plan).stdout);
    assert!(shown.contains("\nDenied\n  line 4  filesystem:write_file: "), "{shown}");
    assert!(shown.contains("in `p.yaml` has no pattern for it"), "{shown}");

    project.write("p.yaml", policy("'**'"));
    let (done, code) = answer(&project, &arguments);
    assert_eq!(code, 0, "{done:#}");
    assert!(project.path("no.txt").exists() && project.path("ok/last.txt").exists());
    let (shown, _) = answer(&project, &[&plan[..], &["--json"]].concat());
    assert_eq!(shown["denied"], json!([]));
}

/// NP-01: a policy file allows nothing that the project forbids or asks about.
#[test]
fn a_policy_file_grants_nothing() {
    let everything = "filesystem:\n  read: { allow: ['**'], hidden: true }\n  write: { allow: ['**'], hidden: true }\nshell: { allow: ['true'], unconfined: ['true'] }\nweb: { allow: ['*'], private: [localhost] }\ntools: ['*']\n";
    let own = json!({ "filesystem": { "read": { "allow": ["**"], "deny": ["src/**"] } } });
    let project = project(Some(own));
    project.write(".hidden", "h");
    for (program, reason) in [
        (read("src/a.txt"), "`policy.filesystem.read.deny` in `.pml.json` has `src/**`"),
        (read(".hidden"), "`policy.filesystem.read.hidden` in `.pml.json` is not set"),
        (write("x.txt", "x"), "`policy.filesystem.write` in `.pml.json` is missing"),
        (
            "return await mcp.shell.exec({ command: ['true'] })".to_owned(),
            "`policy.shell` in `.pml.json` is missing",
        ),
        (
            "return await mcp.web.get({ url: 'http://localhost/' })".to_owned(),
            "`policy.web` in `.pml.json` is missing",
        ),
    ] {
        let (denied, code) = exec_under(&project, everything, &program);
        let message = failure(&denied, "POLICY_DENIED");
        assert!(message.contains(reason) && code == 3, "{program}: {message}");
    }
    assert!(!project.path("x.txt").exists());
    // The built-in policy asks about these, and there is nobody to ask.
    let project = self::project(None);
    project.write(".hidden", "h");
    for program in [
        read(".hidden"),
        "return await mcp.shell.exec({ command: ['true'] })".to_owned(),
        "return await mcp.web.get({ url: 'https://a.test/' })".to_owned(),
    ] {
        let (asked, code) = exec_under(&project, everything, &program);
        assert_eq!((&asked["status"], code), (&json!("approval_required"), 3), "{asked:#}");
    }
    // Rules deny as before.
    let project =
        Project::offline().configure(&json!({ "permissions": { "deny": ["filesystem:*"] } }));
    project.write("notes.md", "n");
    failure(&exec_under(&project, everything, &read("notes.md")).0, "PERMISSION_DENIED");
    assert_eq!(success(&exec_under(&project, everything, "return 1").0), 1);
}

/// NP-11, NP-12: the lower limit counts, whichever of the two has it.
#[test]
fn the_lower_limit_counts() {
    let section = |bytes: u32, calls: u32| json!({ "filesystem": { "read": { "allow": ["**"], "max_bytes": bytes } }, "calls": { "filesystem:*": calls } });
    let count = "let made = 0; try { for (;;) { await mcp.filesystem.read_text_file({ path: 'notes.md' }); made++ } } catch (e) { return [made, e.message] }";
    for (own, given, file) in [(9, 3, "`p.yaml`"), (3, 9, "`.pml.json`")] {
        let project = project(Some(section(1_000, own)));
        // JSON is YAML.
        let (counted, _) = exec_under(&project, &section(1_000, given).to_string(), count);
        let counted = success(&counted);
        assert_eq!(counted[0], 3, "{counted}");
        assert!(counted[1].as_str().unwrap().contains(file), "{counted}");
        let project = self::project(Some(section(own, 10)));
        let (refused, _) = exec_under(&project, &section(given, 10).to_string(), &read("notes.md"));
        let message = failure(&refused, "POLICY_DENIED");
        let named = format!("filesystem.read.max_bytes` in {file} is 3");
        assert!(message.contains(&named), "{message}");
    }
    let project = project(None);
    failure(&exec_under(&project, "total_ms: 200\n", "while (true) {}").0, "TIME_LIMIT");
}

/// A program whose tools are all on the gateway is judged, too, and runs here if only this machine can count its calls.
#[test]
fn programs_on_the_gateway_are_judged() {
    let project = Project::new().allow(&["*"]);
    let program = "return await mcp.math.eval({ expression: '7' })";
    for (policy, side) in
        [("tools: ['math:*']\n", "server"), ("tools: ['math:*']\ncalls: { '*': 5 }\n", "client")]
    {
        let (done, _) = exec_under(&project, policy, program);
        assert_eq!((success(&done), &done["executed"]), (&json!(7), &json!(side)), "{policy}");
        let arguments = ["plan", "-", "--policy", "p.yaml", "--json"];
        let planned = project.run_with(&arguments, program.as_bytes());
        let planned: Value = serde_json::from_slice(&planned.stdout).unwrap();
        assert_eq!(planned["runs_on"], side, "{policy}: {planned:#}");
    }
    let (denied, code) = exec_under(&project, "tools: ['json:*']\n", program);
    let message = failure(&denied, "POLICY_DENIED");
    assert!(message.contains("`tools` in `p.yaml` does not list it") && code == 3, "{message}");
}

/// A file that is invalid or missing stops the command; it is never a policy without rules.
#[test]
fn an_invalid_policy_file_stops_the_command() {
    let project = project(None);
    project.write("program.ts", write("made.txt", "x"));
    for (policy, says) in [
        ("filesystem:\n  raed: {}\n", "`p.yaml` line 2 column 3: unknown field `raed`"),
        ("tools: [*]\n", "put a text that begins with `*` in quotes"),
        ("tools: ['*']\ntools: []\n", "`p.yaml` line 2 column 1: `tools` is there twice"),
        ("policy: {}\n", "unknown field `policy`"),
        ("total_ms: 0\n", "cannot use `p.yaml`: `total_ms` must be at least 1"),
        (
            "match: [{ write: a.txt }]\n",
            "cannot use `p.yaml`: the example `{\"write\": \"a.txt\"}` in `match` is denied: `filesystem.write` in `p.yaml` is missing",
        ),
        ("filesystem: { read: { allow: [/etc/**] } }\n", "`/etc/**` is in no folder of `roots`"),
        ("\u{1b}[2J: x\n", "p.yaml"),
    ] {
        project.write("p.yaml", policy);
        for command in ["exec", "plan"] {
            let output = project.run(&[command, "program.ts", "--policy", "p.yaml"]);
            let shown = text(&output.stderr);
            assert_eq!(output.status.code(), Some(2), "{policy:?}: {shown}");
            assert!(
                shown.contains(says) && shown.contains("CONFIG_INVALID"),
                "{policy:?}: {shown}"
            );
            assert!(!shown.contains('\u{1b}'), "{shown:?}");
        }
    }
    for missing in ["none.yaml", "src"] {
        let (refused, code) =
            answer(&project, &["exec", "program.ts", "--policy", missing, "--json"]);
        let message = failure(&refused, "CONFIG_INVALID");
        assert!(message.contains(&format!("cannot use `{missing}`")) && code == 2, "{message}");
    }
    assert!(!project.path("made.txt").exists());
    project.write("p.yaml", "filesystem: { write: { allow: [made.txt] } }\n");
    let output = project.run(&["exec", "program.ts", "--policy", "p.yaml"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(project.path("made.txt").exists());
    // `pml policy check` reads it in the same way, and has the hash that the record has.
    let (checked, _) = answer(&project, &["policy", "check", "p.yaml", "--json"]);
    assert_eq!(checked["findings"][0]["part"], "match", "{checked:#}");
    let (report, _) = answer(&project, &["report", "--format", "json"]);
    let used = &report["run"]["policy_file"];
    assert_eq!(used, &json!({ "name": "p.yaml", "hash": checked["hash"] }));
    assert_eq!(report["policy"]["policy_file"]["policy"], checked["policy"]);
    let shown = text(&project.run(&["report"]).stdout);
    let hash = checked["hash"].as_str().unwrap();
    assert!(shown.contains(&format!("policy      p.yaml ({hash})")), "{shown}");
    let (done, _) = project.exec("return 1");
    success(&done);
    let (report, _) = answer(&project, &["report", "--format", "json"]);
    assert_eq!(report["run"]["policy_file"], json!(null));
}

/// A run that goes on has the policy with which it began, although its file was changed or deleted since.
#[test]
fn a_resumed_run_keeps_its_policy_file() {
    for changed in
        [Some("filesystem: { read: { allow: ['**'] }, write: { allow: ['**'] } }\n"), None]
    {
        let project = project(None);
        project.write(
            "program.ts",
            "
            await mcp.filesystem.write_file({ path: 'ok/a.txt', content: 'x' });
            await new Promise((next) => setTimeout(next, 3_000));
            await mcp.filesystem.write_file({ path: 'ok/b.txt', content: 'x' });
            await mcp.filesystem.write_file({ path: 'no.txt', content: 'x' });",
        );
        project.write("p.yaml", "filesystem: { write: { allow: ['ok/**'] } }\n");
        let mut pml = project.command(&["exec", "program.ts", "--policy", "p.yaml"]);
        pml.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let mut pml = pml.spawn().unwrap();
        // The file is written before the end of the call is recorded.
        poll("the first call", PATIENCE, || {
            text(&project.run(&["runs", "show"]).stdout).contains("client: success").then_some(())
        });
        pml.kill().unwrap();
        pml.wait().unwrap();
        match changed {
            Some(policy) => project.write("p.yaml", policy),
            None => std::fs::remove_file(project.path("p.yaml")).unwrap(),
        }
        let (ended, code) = answer(&project, &["runs", "resume", "last", "--json"]);
        let message = failure(&ended, "POLICY_DENIED");
        assert!(message.contains("`filesystem.write.allow` in `p.yaml`") && code == 3, "{ended:#}");
        assert!(project.path("ok/b.txt").exists() && !project.path("no.txt").exists());
    }
}

/// RP-05: a replay compares the policy file and the rules, each on its own.
#[test]
fn a_replay_compares_the_policy_file() {
    let project = project(None);
    let (done, _) = exec_under(&project, READS, &read("notes.md"));
    success(&done);
    let inputs = || {
        let (report, code) =
            answer(&project, &["replay", "last", "--program", "program.ts", "--json"]);
        assert_eq!((code, &report["matches"]), (0, &json!(true)), "{report:#}");
        let found = report["changed"].as_array().unwrap().iter();
        let found = found.filter(|input| input["what"] != "tool");
        found.cloned().collect::<Vec<_>>()
    };
    assert_eq!(inputs(), Vec::<Value>::new());
    // Written in another way, it is the same policy.
    project.write("p.yaml", "filesystem: { read: { deny: ['src/**'], allow: [\"**\"] } } # same\n");
    assert_eq!(inputs(), Vec::<Value>::new());
    project.write("p.yaml", READS.replace("src", "lib"));
    let changed = inputs();
    assert_eq!(changed.len(), 1, "{changed:#?}");
    assert_eq!(
        (&changed[0]["what"], &changed[0]["file"], &changed[0]["state"], &changed[0]["error_code"]),
        (&json!("policy_file"), &json!("p.yaml"), &json!("changed"), &json!("INTEGRITY_MISMATCH"))
    );
    assert_ne!(changed[0]["recorded"], changed[0]["now"]);
    project.write("p.yaml", "nonsense: 1\n");
    assert_eq!(inputs()[0]["state"], "unknown");
    std::fs::remove_file(project.path("p.yaml")).unwrap();
    let gone = inputs();
    assert_eq!((&gone[0]["state"], &gone[0]["now"]), (&json!("changed"), &json!(null)));
    let shown = text(&project.run(&["replay", "last", "--program", "program.ts"]).stdout);
    let shown = shown + &text(&project.run(&["replay", "last", "--program", "program.ts"]).stderr);
    assert!(shown.contains("changed: the policy file `p.yaml`, sha256-"), "{shown}");
    // Other rules are named as before.
    project.write("p.yaml", READS);
    let project = project.configure(&json!({ "permissions": { "allow": ["*"], "ask": ["a:*"] } }));
    let (report, _) = answer(&project, &["replay", "last", "--program", "program.ts", "--json"]);
    let whats: Vec<&Value> =
        report["changed"].as_array().unwrap().iter().map(|input| &input["what"]).collect();
    assert_eq!(whats.iter().filter(|what| ***what == "policy").count(), 1, "{report:#}");
    assert!(!whats.contains(&&json!("policy_file")), "{report:#}");
}
