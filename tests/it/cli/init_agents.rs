//! `pml init` and the user's agents: each gets its own form, and their MCP servers can come under PML.

use std::os::unix::fs::symlink;

use serde_json::{Value, json};

use crate::support::binaries::built;
use crate::support::cli::{Project, text};
use crate::support::expect::success;
use crate::support::mcp_client::{Era, StdioClient};
use crate::support::server::Server;
use crate::support::terminal::on_terminal;

/// A project whose home folder has what the agents leave there.
fn with_agents() -> Project {
    let project = Project::new();
    for folder in [".cursor", ".config/Code", ".codex", ".codeium/windsurf"] {
        std::fs::create_dir_all(project.home().join(folder)).unwrap();
    }
    project
}

const WINDSURF: &str = ".codeium/windsurf/mcp_config.json";

fn json_of(text: &str) -> Value {
    serde_json::from_str(text).unwrap()
}

/// Every agent that is found gets its own form, which starts a working `pml stdio`; what was in a file stays.
#[test]
fn every_agent_that_is_found_is_connected() {
    let project = with_agents();
    let before = "// shared\n{\n  \"servers\": {\n    \"docs\": { \"url\": \"https://docs.test/mcp\" }, // ours\n  },\n}\n";
    project.write(".vscode/mcp.json", before);
    let codex = "model = \"x\" # mine\n\n[mcp_servers.a]\ncommand = 'x'\n";
    project.write(".codex/config.toml", codex);
    let done = project.run(&["init", "--yes"]);
    assert!(done.status.success(), "{}", text(&done.stderr));

    let code = project.read(".vscode/mcp.json");
    for kept in ["// shared\n", "\"docs\": { \"url\": \"https://docs.test/mcp\" }", "// ours"] {
        assert!(code.contains(kept), "{code}");
    }
    let plain: String = code.lines().map(|line| line.split("//").next().unwrap()).collect();
    assert!(
        plain.contains("\"--workspace\"") && plain.contains("\"${workspaceFolder}\""),
        "{code}"
    );
    assert_eq!(project.read(".vscode/mcp.json.backup"), before);
    let toml = project.read(".codex/config.toml");
    assert!(toml.starts_with(codex), "{toml}");
    assert!(toml.contains("[mcp_servers.pml]\ncommand = \"pml\"\nargs = [\"stdio\"]\n"), "{toml}");

    let cursor = json_of(&project.read(".cursor/mcp.json"))["mcpServers"]["pml"].clone();
    let windsurf = std::fs::read_to_string(project.home().join(WINDSURF)).unwrap();
    let windsurf = json_of(&windsurf)["mcpServers"]["pml"].clone();
    let folder = project.workspace().display().to_string();
    assert_eq!(windsurf["args"], json!(["stdio", "--workspace", folder]));
    for entry in
        [cursor, windsurf, json_of(&project.read(".mcp.json"))["mcpServers"]["pml"].clone()]
    {
        assert_eq!(entry["command"], "pml");
        let args = entry["args"].as_array().unwrap().iter().map(|arg| arg.as_str().unwrap());
        let args: Vec<String> =
            args.map(|arg| arg.replace("${workspaceFolder}", &folder)).collect();
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        let mut client = StdioClient::start(project.command(&args), Era::Handshake, &project.log());
        assert_eq!(success(&client.execute("return 1")), 1, "{entry}");
    }

    let ignored = project.read(".gitignore");
    for file in [".vscode/mcp.json.backup", ".codex/config.toml.backup"] {
        assert!(ignored.lines().any(|line| line == file), "{ignored}");
    }
    let program = built("pml");
    let path =
        format!("{}:{}", program.parent().unwrap().display(), std::env::var("PATH").unwrap());
    let project = project.set("PATH", &path);
    let doctor = project.run(&["doctor"]);
    let findings = text(&doctor.stdout);
    for file in [".mcp.json", ".cursor/mcp.json", ".vscode/mcp.json", ".codex/config.toml"] {
        let line = findings.lines().find(|line| line.contains(&format!(" {file} "))).unwrap();
        assert!(line.starts_with("ok ") && line.ends_with("/pml stdio"), "{line}");
    }
    let again = project.run(&["init"]);
    assert!(text(&again.stdout).contains("nothing was changed"), "{}", text(&again.stdout));
}

/// `--agent` replaces the search; without one there is only the file that several agents read.
#[test]
fn only_the_named_agents_are_set_up() {
    let project = with_agents();
    assert!(project.run(&["init", "--yes", "--agent", "vscode"]).status.success());
    assert!(project.path(".vscode/mcp.json").exists());
    for other in [".mcp.json", ".cursor", ".codex"] {
        assert!(!project.path(other).exists(), "{other}");
    }
    assert!(!project.home().join(WINDSURF).exists());

    let alone = Project::new();
    assert!(alone.run(&["init", "--yes"]).status.success());
    for other in [".cursor", ".vscode", ".codex"] {
        assert!(!alone.path(other).exists(), "{other}");
    }
    let unknown = alone.run(&["init", "--yes", "--agent", "emacs"]);
    assert_eq!(unknown.status.code(), Some(2), "{}", text(&unknown.stderr));
}

/// Windsurf has one file for all projects: an entry for another one is neither replaced nor called complete.
#[test]
fn the_file_for_all_projects_keeps_the_entry_of_another_one() {
    let project = with_agents();
    let file = project.home().join(WINDSURF);
    let other =
        r#"{"mcpServers":{"pml":{"command":"pml","args":["stdio","--workspace","/srv/other"]}}}"#;
    std::fs::write(&file, other).unwrap();
    let done = project.run(&["init", "--yes"]);
    let report = text(&done.stdout);
    assert!(report.contains("its `pml` is for `/srv/other`"), "{report}");
    assert_eq!(std::fs::read_to_string(&file).unwrap(), other);
}

/// One file that cannot be used stops the command before any other is written.
#[test]
fn one_unusable_file_leaves_all_as_they_are() {
    for (name, content, reason) in [
        (".vscode/mcp.json", "{ \"servers\": [] }", "`servers` is not an object"),
        (".cursor/mcp.json", "{ 'mcpServers': {} }", ".cursor/mcp.json"),
        (".codex/config.toml", "[mcp_servers\n", "line 1"),
        (".codex/config.toml", "mcp_servers = 1\n", "`mcp_servers` is not a table"),
    ] {
        let project = with_agents();
        project.write(name, content);
        let refused = project.run(&["init", "--yes"]);
        let message = text(&refused.stderr);
        assert_eq!(refused.status.code(), Some(2), "{message}");
        assert!(message.contains(reason) && message.contains(name), "{message}");
        assert_eq!(project.read(name), content);
        for other in [".mcp.json", ".pml.json", ".gitignore"] {
            assert!(!project.path(other).exists(), "{other}");
        }
    }
    // A repository's link could lead the write to any file of the user.
    for (link, target) in [(".cursor", "elsewhere"), (".vscode/mcp.json", "elsewhere/x.json")] {
        let project = with_agents();
        std::fs::create_dir_all(project.home().join("elsewhere")).unwrap();
        std::fs::write(project.home().join("elsewhere/x.json"), "{}").unwrap();
        std::fs::create_dir_all(project.path(link).parent().unwrap()).unwrap();
        symlink(project.home().join(target), project.path(link)).unwrap();
        let refused = project.run(&["init", "--yes"]);
        assert_eq!(refused.status.code(), Some(2), "{}", text(&refused.stderr));
        assert!(text(&refused.stderr).contains("symbolic link"), "{}", text(&refused.stderr));
        assert!(!project.path(".mcp.json").exists());
        assert_eq!(std::fs::read_to_string(project.home().join("elsewhere/x.json")).unwrap(), "{}");
    }
}

/// The servers of two agents come under PML: their entries move, and a program calls one of them.
#[test]
fn servers_of_agents_come_under_pml() {
    let project = with_agents();
    let memory = project.node_server("server-memory", &[]);
    let everything = project.node_server("server-everything", &[]);
    let token = format!("ghp_{}", "a1B2".repeat(9));
    let agents = json!({ "mcpServers": {
        "notes": memory,
        "keyed": { "command": "node", "args": ["k.js"], "env": { "GITHUB_TOKEN": token } },
        "filesystem": { "command": "node", "args": ["f.js"] },
    } });
    project.write(".mcp.json", agents.to_string());
    project.write(
        ".cursor/mcp.json",
        json!({ "mcpServers": {
            "notes": memory,
            "every": everything,
            "off": { "command": "x", "disabled": true },
        } })
        .to_string(),
    );
    let said = project.run(&["init", "--yes"]);
    let report = text(&said.stdout);
    assert!(report.contains("`every`, `notes`"), "{report}");
    assert!(report.contains("pml init --import-servers"), "{report}");
    assert!(json_of(&project.read(".mcp.json"))["mcpServers"]["notes"].is_object());

    let moved = project.run(&["init", "--yes", "--import-servers"]);
    let report = text(&moved.stdout);
    assert!(moved.status.success(), "{}", text(&moved.stderr));
    for words in [
        "`keyed` in .mcp.json: `env`: `GITHUB_TOKEN` looks like a secret",
        "`pml secrets set GITHUB_TOKEN`",
        "`filesystem` in .mcp.json: `filesystem` is built into `pml`",
        "`off` in .cursor/mcp.json: it is switched off",
    ] {
        assert!(report.contains(words), "{words}: {report}");
    }
    assert!(!report.contains(&token), "{report}");
    let names = |file: &str| -> Vec<String> {
        let servers = json_of(&project.read(file))["mcpServers"].clone();
        let mut names: Vec<String> = servers.as_object().unwrap().keys().cloned().collect();
        names.sort();
        names
    };
    assert_eq!(names(".mcp.json"), ["filesystem", "keyed", "pml"]);
    assert_eq!(names(".cursor/mcp.json"), ["off", "pml"]);
    assert_eq!(names(".pml.json"), ["every", "notes"]);
    assert_eq!(json_of(&project.read(".mcp.json.backup")), agents);

    // It is trusted, so the server starts; and its call is decided like any other.
    let project = project.set("PML_TRUST_NONINTERACTIVE", "1");
    let mut config = json_of(&project.read(".pml.json"));
    config["permissions"]["allow"] = json!(["every:*"]);
    let project = project.configure(&config);
    let (answer, _) = project.exec("return await mcp.every.echo({ message: 'a' })");
    assert!(success(&answer).to_string().contains("Echo: a"), "{answer}");
    let again = project.run(&["init", "--yes", "--import-servers"]);
    assert!(
        again.status.success() && !text(&again.stdout).contains("Moved"),
        "{}",
        text(&again.stdout)
    );
}

/// A person sees what would start, and "no" is the default. What came with a repository is not added to.
#[test]
fn servers_are_moved_after_a_clear_yes_only() {
    let (continues, moves) = (
        (r"Continue\? \[Y/n\]: ", "y"),
        r"Move them from the agents' files to `.pml.json`\? \[y/N\]: ",
    );
    let project = Project::new();
    let entry = json!({ "command": "node", "args": ["n.js", "\u{1b}[2Jx"], "env": { "A": "b" } });
    project.write(".mcp.json", json!({ "mcpServers": { "notes": entry } }).to_string());
    let (shown, code) = on_terminal(&project, &["init"], &[continues, (moves, "")]);
    assert_eq!(code, 0, "{shown}");
    assert!(
        shown.contains("- `notes` in .mcp.json: node n.js \\u{1b}[2Jx (variables: A)"),
        "{shown}"
    );
    assert!(json_of(&project.read(".pml.json"))["mcpServers"].is_null());
    let (shown, code) = on_terminal(&project, &["init"], &[(moves, "y"), (r"\[y/N\]: ", "")]);
    assert_eq!(code, 0, "{shown}");
    assert_eq!(json_of(&project.read(".pml.json"))["mcpServers"]["notes"], entry);

    let untrusted = Project::new();
    untrusted.write(".mcp.json", json!({ "mcpServers": { "notes": entry } }).to_string());
    untrusted.write(".pml.json", "{}");
    let refused = untrusted.run(&["init", "--yes", "--import-servers"]);
    assert_eq!(refused.status.code(), Some(2), "{}", text(&refused.stdout));
    assert!(text(&refused.stderr).contains("run `pml trust`"), "{}", text(&refused.stderr));
    assert_eq!(untrusted.read(".pml.json"), "{}");
    assert!(json_of(&untrusted.read(".mcp.json"))["mcpServers"]["notes"].is_object());
}

/// A person without a key is asked for it, unseen; Enter sets the project up without a gateway.
#[test]
fn a_person_is_asked_for_the_key() {
    let continues = (r"Continue\? \[Y/n\]: ", "y");
    let local = Project::at("").without("PML_CLOUD_URL").without("PML_API_KEY");
    let (shown, code) = on_terminal(&local, &["init"], &[continues, (r"run without one\): ", "")]);
    assert_eq!(code, 0, "{shown}");
    assert!(shown.contains("Without a gateway."), "{shown}");
    assert_eq!(success(&local.exec("return 1 + 1").0), 2);

    let tenant = Server::shared().tenant();
    let project = Project::at("").without("PML_CLOUD_URL").without("PML_API_KEY");
    let asked = [
        continues,
        (r"run without one\): ", tenant.url.as_str()),
        (r"not shown; Enter for none\): ", tenant.key.as_str()),
    ];
    let (shown, code) = on_terminal(&project, &["init"], &asked);
    assert_eq!(code, 0, "{shown}");
    assert!(shown.contains(&format!("Logged in to {}", tenant.url)), "{shown}");
    assert!(!shown.contains(&tenant.key), "the key is not shown");
    assert_eq!(success(&project.exec("return await mcp.string.upper({ text: 'a' })").0), "A");
    for file in [".mcp.json", ".pml.json", ".gitignore"] {
        assert!(!project.read(file).contains(&tenant.key), "{file}");
    }

    let refused = Project::at("").without("PML_CLOUD_URL").without("PML_API_KEY");
    let key = format!("pml_user_{}", "x".repeat(43));
    let asked = [
        continues,
        (r"run without one\): ", tenant.url.as_str()),
        (r"Enter for none\): ", key.as_str()),
    ];
    let (shown, code) = on_terminal(&refused, &["init"], &asked);
    assert_ne!(code, 0, "{shown}");
    assert!(refused.path(".pml.json").exists(), "the project is set up all the same");
    assert!(!refused.home().join(".config/pml/credentials").exists());
}
