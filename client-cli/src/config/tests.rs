mod entries;

use protocol::ToolId;
use rustix::fs::Mode;
use serde_json::{Value, json};

use super::stored::{FILE_LIMIT, default_file};
use super::*;
use crate::consent::decision::{Call, Decision, decide};

struct Project {
    folder: tempfile::TempDir,
    workspace: Workspace,
    store: TrustStore,
}

impl Project {
    fn new(content: Option<&str>) -> Self {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("w")).unwrap();
        let workspace = Workspace::open(&folder.path().join("w")).unwrap();
        if let Some(content) = content {
            std::fs::write(workspace.root().join(FILE), content).unwrap();
        }
        let store = TrustStore::in_folder(folder.path().join("state"));
        Self { folder, workspace, store }
    }

    fn load(&self) -> Result<Config, ConfigError> {
        Config::load(&self.workspace, &self.store)
    }

    fn text(&self) -> String {
        std::fs::read_to_string(self.workspace.root().join(FILE)).unwrap()
    }

    fn trust(&self) {
        trust(&self.workspace, &self.store, self.text().as_bytes()).unwrap();
    }
}

fn id(text: &str) -> ToolId {
    text.parse().unwrap()
}

fn decision(config: &Config, tool: &str) -> &'static str {
    match decide(&config.permissions, &id(tool), Call::default()) {
        Decision::Run { .. } => "run",
        Decision::Ask { .. } => "asked",
        Decision::Refused { .. } => "refused",
    }
}

const FULL: &str = r#"{
  "version": "1.0",
  "workspace": ".",
  "cloud": { "url": "https://gateway.test" },
  "server": { "port": 3003 },
  "permissions": { "allow": ["git:*"], "ask": ["json:*"], "deny": ["shell:*"] },
  "private_mcps": { "own": { "command": "own" } },
  "registries": ["https://registry.test"],
  "mcpServers": { "notes": { "command": "notes", "args": ["${workspace}"], "env": { "A": "1" }, "cwd": "sub", "network": "all" } },
  "expose_tools": ["notes:*"]
}"#;

/// CL-04: the restrictions in a repository's file apply at once, its grants only after its content is trusted. An edit
/// revokes the trust.
#[test]
fn an_untrusted_file_only_restricts() {
    let project = Project::new(Some(FULL));
    let config = project.load().unwrap();
    assert_eq!(config.trust, Trust::Untrusted);
    assert_eq!(decision(&config, "git:log"), "asked");
    assert_eq!(decision(&config, "shell:exec"), "refused");
    assert!(config.mcp_servers.is_empty() && config.private_mcps.is_empty());
    assert_eq!((config.cloud_url.as_deref(), config.serve_port), (None, None));
    assert_eq!(
        config.ignored_untrusted,
        [
            "workspace",
            "cloud",
            "server",
            "permissions.allow",
            "private_mcps",
            "registries",
            "mcpServers",
            "expose_tools"
        ]
    );
    assert!(config.warnings()[0].contains("pml trust"));

    project.trust();
    let config = project.load().unwrap();
    assert_eq!(config.trust, Trust::Trusted);
    let warned = config.warnings().join("\n");
    assert!(!warned.contains("expose_tools"), "{warned}");
    assert!(warned.contains("`workspace` in") && !warned.contains("registries"), "{warned}");
    let registries = config.registries.iter();
    let registries: Vec<_> = registries.map(|one| (one.origin.as_str(), one.optional)).collect();
    assert_eq!(registries, [("https://registry.test", false)]);
    assert!(!warned.contains("trust"), "{warned}");
    assert_eq!(decision(&config, "git:log"), "run");
    assert_eq!(decision(&config, "shell:exec"), "refused");
    let notes = config.mcp_servers["notes"].spec("/home".into(), "/packages".into());
    assert_eq!(notes.args, ["${workspace}"]);
    assert_eq!(config.cloud_url.as_deref(), Some("https://gateway.test"));
    assert_eq!(config.serve_port, Some(3003));

    std::fs::write(project.workspace.root().join(FILE), FULL.replace("notes\"", "evil\"")).unwrap();
    assert_eq!(project.load().unwrap().trust, Trust::Untrusted);
}

#[test]
fn only_what_was_shown_is_trusted() {
    let project = Project::new(Some(FULL));
    trust(&project.workspace, &project.store, b"{}").unwrap_err();
    assert_eq!(project.load().unwrap().trust, Trust::Untrusted);
}

/// CL-07: for a file with a byte order mark, the error says so instead of naming line 1 column 1.
#[test]
fn a_byte_order_mark_is_named() {
    let project = Project::new(Some("\u{feff}{}"));
    let error = project.load().unwrap_err().to_string();
    assert!(error.contains("byte order mark"), "{error}");
}

/// CL-07: any error in the file stops the program.
#[test]
fn an_invalid_file_is_an_error() {
    for (content, place) in [
        ("", Some((1, 0))),
        ("{", Some((1, 1))),
        // For a struct, serde also accepts an array of the fields in order. `Strict` refuses these.
        ("[]", None),
        ("{\"permissions\": []}", None),
        ("{\"cloud\": [\"https://x.test\"]}", None),
        ("{\"mcpServers\": {\"a\": [\"x\"]}}", None),
        ("{} {}", Some((1, 4))),
        ("{\"permisions\": {}}", Some((1, 13))),
        ("{\"permissions\": {\"deny\": \"shell:*\"}}", None),
        ("{\n  \"permissions\": {\"deny\": [\"shell\"]}\n}", Some((2, 35))),
        ("{\"permissions\": {\"denied\": []}}", None),
        ("{\"permissions\": {}, \"permissions\": {}}", None),
        ("{\"permissions\": {\"deny\": [], \"deny\": []}}", None),
        ("{\"mcpServers\": {\"a\": {\"command\": \"x\"}, \"a\": {\"command\": \"y\"}}}", None),
        (
            "{\"mcpServers\": {\"a\": {\"command\": \"x\", \"env\": {\"A\": \"1\", \"A\": \"2\"}}}}",
            None,
        ),
        ("{\"mcpServers\": {\"a\": {\"cmd\": \"x\"}}}", None),
        (
            "{\"mcpServers\": {\"a\": {\"command\": \"x\", \"network\": [\"https://x.test\"]}}}",
            None,
        ),
        ("{\"mcpServers\": {\"a\": {\"command\": \"x\", \"network\": \"none\"}}}", None),
        ("{\"mcpServers\": {\"a\": {\"url\": \"https://x.test/mcp\", \"network\": []}}}", None),
        ("{\"mcpServers\": {\"a b\": {\"command\": \"x\"}}}", None),
        ("{\"mcpServers\": {\"pml\": {\"command\": \"x\"}}}", None),
        ("{\"mcpServers\": {\"filesystem\": {\"command\": \"x\"}}}", None),
        (
            "{\"mcpServers\": {\"a\": {\"command\": \"x\"}}, \"private_mcps\": {\"a\": {\"command\": \"x\"}}}",
            None,
        ),
        ("{\"policy\": []}", None),
        ("{\"policy\": {\"net\": {}}}", Some((1, 17))),
        ("{\"policy\": {\"match\": [{\"read\": \"a\"}]}}", None),
        ("{\"cloud\": {}}", None),
        ("\u{feff}{}", Some((1, 1))),
    ] {
        let error = Project::new(Some(content)).load().expect_err(content);
        let text = error.to_string();
        assert!(text.contains(".pml.json"), "{text}");
        if let Some((expected_line, expected_column)) = place {
            let ConfigError::Invalid { line, column, .. } = error else { panic!("{text}") };
            assert_eq!((line, column), (expected_line, expected_column), "{content}: {text}");
        }
    }
    let native = "{\"mcpServers\": {\"filesystem\": {\"command\": \"x\", \"override\": true}}}";
    Project::new(Some(native)).load().unwrap();
    assert_eq!(Project::new(None).load().unwrap().trust, Trust::NoFile);
}

/// CL-07: every kind of unreadable file.
#[test]
fn a_file_that_cannot_be_read_is_an_error() {
    let project = Project::new(None);
    let path = project.workspace.root().join(FILE);
    std::fs::write(&path, b"{\"workspace\": \"\xff\"}").unwrap();
    project.load().unwrap_err();
    std::fs::write(&path, format!("{{}}{}", " ".repeat(FILE_LIMIT))).unwrap();
    project.load().unwrap_err();
    std::fs::remove_file(&path).unwrap();
    std::fs::create_dir(&path).unwrap();
    project.load().unwrap_err();
    std::fs::remove_dir(&path).unwrap();
    std::fs::write(project.folder.path().join("elsewhere.json"), "{}").unwrap();
    std::os::unix::fs::symlink("../elsewhere.json", &path).unwrap();
    project.load().unwrap_err();
    std::fs::remove_file(&path).unwrap();
    // Opening a FIFO without a writer blocks unless `O_NONBLOCK` is set.
    rustix::fs::mknodat(
        project.workspace.directory(),
        FILE,
        rustix::fs::FileType::Fifo,
        Mode::from_raw_mode(0o600),
        0,
    )
    .unwrap();
    project.load().unwrap_err();
    std::fs::remove_file(&path).unwrap();
    project.load().unwrap();
}

/// What guides and other projects write is accepted as it stands.
#[test]
fn common_files_are_accepted() {
    for (content, ignored) in [
        (
            r#"{ "version": "1.0", "workspace": "/home/me/project",
                "cloud": { "url": "https://pml.casys.ai" }, "server": { "port": 3003 },
                "permissions": { "allow": ["filesystem:*"], "deny": ["shell:*"], "ask": ["*"] } }"#,
            "workspace cloud server permissions.allow",
        ),
        (r#"{ "expose_tools": { "mode": "hybrid", "curated_limit": 10 } }"#, "expose_tools"),
        (
            r#"{ "permissions": { "allow": ["tavily:*"], "ask": ["filesystem:*"] } }"#,
            "permissions.allow",
        ),
        (r#"{ "permissions": { "allow": ["json:*", "serena:analyze"] } }"#, "permissions.allow"),
        (
            r#"{ "permissions": { "allow": ["*"], "ask": [], "deny": [] },
                "private_mcps": { "internal-db": { "type": "stdio",
                    "install": { "command": "npx", "args": ["@company/internal-db-mcp"] },
                    "tools": ["internal_db:query", "internal_db:migrate"] } } }"#,
            "permissions.allow private_mcps",
        ),
        (
            r#"{ "registries": ["https://pml.casys.ai", "https://mcp.company.internal"] }"#,
            "registries",
        ),
    ] {
        let project = Project::new(Some(content));
        assert_eq!(project.load().unwrap().ignored_untrusted.join(" "), ignored, "{content}");
        project.trust();
        assert_eq!(project.load().unwrap().trust, Trust::Trusted);
    }
}

/// What the story of this setting has as its example is refused, with the line to write.
#[test]
fn a_registry_with_a_path_is_refused() {
    let project = Project::new(Some("{ \"registries\": [\n\"https://pml.casys.ai/registry\"] }"));
    let error = project.load().unwrap_err().to_string();
    assert!(error.starts_with("`.pml.json` line 2 column "), "{error}");
    assert!(error.contains("write `\"https://pml.casys.ai\"`"), "{error}");
}

/// The forms of `version`, `server` and `expose_tools`. What is refused says what to write.
#[test]
fn small_settings_are_checked() {
    for good in [
        r#"{ "version": 1 }"#,
        r#"{ "version": 1.0 }"#,
        r#"{ "version": "1" }"#,
        r#"{ "version": "1.0" }"#,
        r#"{ "version": "1.0.0" }"#,
        r#"{ "server": { "port": 1 } }"#,
        r#"{ "server": { "port": 65535 } }"#,
        r#"{ "expose_tools": ["notes:*"] }"#,
        r#"{ "expose_tools": { "mode": "hybrid", "curated_limit": 10 } }"#,
        r#"{ "expose_tools": { "mode": "toolkit" } }"#,
    ] {
        let project = Project::new(Some(good));
        let untrusted = project.load().unwrap();
        project.trust();
        let trusted = project.load().unwrap();
        // The version is only checked, so it counts in any file.
        assert_eq!(untrusted.ignored_untrusted.is_empty(), good.contains("version"), "{good}");
        assert_eq!(trusted.warnings(), [""; 0], "{good}");
    }
    for (wrong, words) in [
        (
            r#"{ "version": 2 }"#,
            "version `2` of this file is not known, only 1: write `\"version\": 1`",
        ),
        (r#"{ "version": "2.0" }"#, "version `2.0` of this file is not known"),
        (r#"{ "version": -1 }"#, "version `-1` of this file is not known"),
        (r#"{ "version": 1.5 }"#, "version `1.5` of this file is not known"),
        (r#"{ "version": true }"#, "expected the version of this file, which is 1"),
        (r#"{ "server": {} }"#, "missing field `port`"),
        (r#"{ "server": [3003] }"#, "expected an object"),
        (r#"{ "server": { "port": 0 } }"#, "expected a port from 1 to 65535"),
        (r#"{ "server": { "port": 65536 } }"#, "expected a port from 1 to 65535"),
        (r#"{ "server": { "port": "3003" } }"#, "invalid type: string"),
        (r#"{ "server": { "port": 3003, "host": "0.0.0.0" } }"#, "unknown field `host`"),
        (r#"{ "expose_tools": "hybrid" }"#, "expected a list of tools, or `{ \"mode\": \"hybrid\""),
        (r#"{ "expose_tools": ["twice"] }"#, "`namespace:action`"),
        (r#"{ "expose_tools": ["notes:twice@0.1.0"] }"#, "without a version"),
        (r#"{ "expose_tools": { "mode": "all" } }"#, "expected `toolkit` or `hybrid`"),
        (r#"{ "expose_tools": { "curated_limit": 10 } }"#, "missing field `mode`"),
        (r#"{ "expose_tools": { "mode": "hybrid", "curated_limit": 0 } }"#, "nonzero"),
        (r#"{ "expose_tools": { "mode": "hybrid", "mode": "hybrid" } }"#, "duplicate field"),
    ] {
        let error = Project::new(Some(wrong)).load().expect_err(wrong).to_string();
        assert!(error.contains(words), "{wrong}: {error}");
        assert!(error.starts_with("`.pml.json` line 1 column "), "{error}");
    }
}

/// What `expose_tools` can list.
#[test]
fn limits_of_exposed_tools() {
    for (value, can_add, limit) in [
        ("[]", false, None),
        (r#"["notes:*"]"#, true, None),
        (r#"{ "mode": "toolkit" }"#, false, Some(0)),
        (r#"{ "mode": "toolkit", "curated_limit": 3 }"#, false, Some(0)),
        (r#"{ "mode": "hybrid" }"#, true, Some(10)),
        (r#"{ "mode": "hybrid", "curated_limit": 3 }"#, true, Some(3)),
    ] {
        let parsed: ExposeTools = serde_json::from_str(value).unwrap();
        assert_eq!(parsed.can_add(), can_add, "{value}");
        let found = match &parsed {
            ExposeTools::Listed(_) => None,
            ExposeTools::Curated(curated) => Some(curated.limit()),
        };
        assert_eq!(found, limit, "{value}");
    }
}

/// A rule that names a server's entry instead of its namespace denies, but allows nothing and says so.
#[test]
fn a_rule_for_the_name_of_an_entry_is_warned_about() {
    for (rules, warning, decided) in [
        (r#""allow": ["own-db:*"]"#, Some("write `own_db:*`"), "asked"),
        (r#""allow": ["own-db:query"]"#, Some("write `own_db:query`"), "asked"),
        (r#""allow": ["own_db:*"]"#, None, "run"),
        (r#""allow": ["*"], "deny": ["own-db:*"]"#, None, "refused"),
        (r#""allow": ["*"], "deny": ["own_db:query"]"#, None, "refused"),
    ] {
        let entry = r#"{ "command": "x", "tools": ["own_db:query"] }"#;
        let content = format!(
            r#"{{ "permissions": {{ {rules} }}, "private_mcps": {{ "own-db": {entry} }} }}"#
        );
        let project = Project::new(Some(&content));
        let untrusted = decision(&project.load().unwrap(), "own_db:query");
        assert_eq!(untrusted, if decided == "refused" { "refused" } else { "asked" });
        project.trust();
        let config = project.load().unwrap();
        let warned = config.warnings().join("\n");
        assert_eq!(decision(&config, "own_db:query"), decided, "{rules}");
        assert_eq!(warning.is_some_and(|words| warned.contains(words)), warning.is_some());
        assert_eq!(warned.is_empty(), warning.is_none(), "{warned}");
    }
}

#[test]
fn always_writes_exactly_that_tool() {
    let project = Project::new(Some(FULL));
    let refused = add_allow(&project.workspace, &project.store, &id("notes:add")).unwrap_err();
    assert!(matches!(refused, ConfigError::Untrusted { .. }), "{refused}");
    assert_eq!(project.text(), FULL);
    project.trust();
    // The second answer changes nothing: the tool is listed once.
    for _ in 0..2 {
        add_allow(&project.workspace, &project.store, &id("notes:add")).unwrap();
    }
    let before: Value = serde_json::from_str(FULL).unwrap();
    let mut after: Value = serde_json::from_str(&project.text()).unwrap();
    assert_eq!(after["permissions"]["allow"], json!(["git:*", "notes:add"]));
    after["permissions"]["allow"] = json!(["git:*"]);
    assert_eq!(
        after.to_string(),
        before.to_string(),
        "the order and all other content are preserved"
    );
    assert_eq!(project.load().unwrap().trust, Trust::Trusted);

    let new = Project::new(None);
    add_allow(&new.workspace, &new.store, &id("notes:add")).unwrap();
    assert_eq!(rules(&new.workspace).allow, ["notes:add".parse().unwrap()]);
    assert_eq!(decision(&new.load().unwrap(), "notes:add"), "run");
}

/// CL-14: concurrent "always" answers are all stored.
#[test]
fn concurrent_answers_are_all_stored() {
    let project = Project::new(None);
    std::thread::scope(|scope| {
        for n in 0..12 {
            let project = &project;
            scope.spawn(move || {
                add_allow(&project.workspace, &project.store, &id(&format!("notes:t{n}"))).unwrap();
            });
        }
    });
    assert_eq!(rules(&project.workspace).allow.len(), 12);
    assert_eq!(project.load().unwrap().trust, Trust::Trusted);
}

/// `docs/permissions.md` lists the namespaces that `pml init` allows.
#[test]
fn the_default_permissions_are_documented() {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/permissions.md");
    let page = std::fs::read_to_string(page).unwrap();
    let (_, listed) = page.split_once("`pml init` allows `").unwrap();
    let listed: Vec<&str> = listed.split('`').next().unwrap().split_whitespace().collect();
    let file = default_file();
    let allowed = file["permissions"]["allow"].as_array().unwrap().iter();
    let allowed = allowed.filter_map(|pattern| pattern.as_str().unwrap().strip_suffix(":*"));
    assert_eq!(listed, allowed.collect::<Vec<&str>>());
}

/// LM-08: of names that a reader could mistake for each other, or for built-in tools, none counts.
#[test]
fn look_alike_servers_are_refused() {
    let both = |first: &str, second: &str| {
        let entry = r#"{ "command": "a" }"#;
        format!(r#"{{ "mcpServers": {{ "{first}": {entry}, "{second}": {entry} }} }}"#)
    };
    for (file, words) in [
        (both("notes", "n0tes"), "`notes` looks like `n0tes`; rename one of the two servers"),
        (both("own-db", "owndb"), "`owndb` looks like `own-db`; rename one of the two servers"),
        (both("rnail", "mail"), "`rnail` looks like `mail`; rename one of the two servers"),
        (both("notes", "notes"), "duplicate"),
        (both("notes", "she11"), "`she11` looks like `shell`, which is built into `pml`"),
        (both("notes", "file_system"), "`file_system` looks like `filesystem`, which is built"),
        (
            r#"{ "private_mcps": { "notes": { "command": "a" } }, "mcpServers": { "n0tes": { "command": "a" } } }"#
                .to_owned(),
            "`notes` looks like `n0tes`",
        ),
    ] {
        let error = Project::new(Some(&file)).load().expect_err(&file).to_string();
        assert!(error.contains(words), "{file}: {error}");
    }
    for (first, second) in [("notes", "note"), ("db1", "db2"), ("git-hub", "gitlab")] {
        Project::new(Some(&both(first, second))).load().unwrap();
    }
}

/// The text of programs stays on this machine as soon as a file says so, trusted or not.
#[test]
fn a_file_keeps_the_text_of_programs_here() {
    for (file, keeps) in [
        (r#"{ "analysis": "local" }"#, true),
        (r#"{ "analysis": "gateway" }"#, false),
        (r#"{ "analysis": null }"#, false),
        ("{}", false),
    ] {
        let project = Project::new(Some(file));
        let untrusted = project.load().unwrap();
        assert_eq!(untrusted.permissions.keeps_text(), keeps, "{file}");
        assert!(untrusted.ignored_untrusted.is_empty(), "{file}");
        project.trust();
        assert_eq!(project.load().unwrap().permissions.keeps_text(), keeps, "{file}");
    }
    for wrong in [r#"{ "analysis": "Local" }"#, r#"{ "analysis": true }"#, r#"{ "analysis": {} }"#]
    {
        let error = Project::new(Some(wrong)).load().expect_err(wrong).to_string();
        assert!(error.starts_with("`.pml.json` line 1 column "), "{error}");
    }
}

/// A file can turn traces off without trust, and needs it to have values sent.
#[test]
fn a_file_sends_values_only_if_it_is_trusted() {
    use TraceLevel::{Full, Off, Summary};
    for (file, untrusted, trusted) in [
        ("{}", Summary, Summary),
        (r#"{ "traces": "off" }"#, Off, Off),
        (r#"{ "traces": "summary" }"#, Summary, Summary),
        (r#"{ "traces": "full" }"#, Summary, Full),
    ] {
        let project = Project::new(Some(file));
        let config = project.load().unwrap();
        assert_eq!(config.permissions.traces(), untrusted, "{file}");
        let ignored = config.ignored_untrusted;
        assert_eq!(ignored.contains(&"traces".to_owned()), untrusted != trusted, "{file}");
        project.trust();
        assert_eq!(project.load().unwrap().permissions.traces(), trusted, "{file}");
    }
    for wrong in [r#"{ "traces": "Full" }"#, r#"{ "traces": true }"#, r#"{ "traces": {} }"#] {
        let error = Project::new(Some(wrong)).load().expect_err(wrong).to_string();
        assert!(error.starts_with("`.pml.json` line 1 column "), "{error}");
    }
}
