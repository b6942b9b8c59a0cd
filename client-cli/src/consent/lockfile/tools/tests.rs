//! Tests of pinned tools: what counts as changed.

use std::path::PathBuf;

use serde_json::{Value, json};

use super::*;
use crate::consent::trust::TrustStore;
use crate::workspace::Workspace;

struct Project {
    folder: tempfile::TempDir,
    workspace: Arc<Workspace>,
}

impl Project {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().join("w");
        std::fs::create_dir(&root).unwrap();
        Self { workspace: Arc::new(Workspace::open(&root).unwrap()), folder }
    }

    /// Opens the lock with the records of this user, as another process would.
    fn open(&self, user: &str) -> Lockfile {
        let store = TrustStore::in_folder(self.folder.path().join(user));
        Lockfile::load(Arc::clone(&self.workspace), store).unwrap()
    }

    fn path(&self) -> PathBuf {
        self.workspace.root().join(FILE)
    }

    /// Changes the lock by hand.
    fn edit(&self, change: impl FnOnce(&mut Value)) {
        let mut lock = serde_json::from_slice(&std::fs::read(self.path()).unwrap()).unwrap();
        change(&mut lock);
        std::fs::write(self.path(), lock.to_string()).unwrap();
    }
}

fn notes(start: &str) -> ToolsOf {
    ToolsOf::configured("notes", Integrity::of(start.as_bytes()))
}

/// Returns a list of tools, each with its description.
fn list(tools: &[(&str, &str)]) -> Arc<Vec<ToolDescriptor>> {
    let tool = |(name, description): &(&str, &str)| json!({ "name": name, "description": description, "inputSchema": {} });
    let tools: Vec<Value> = tools.iter().map(tool).collect();
    Arc::new(serde_json::from_value(json!(tools)).unwrap())
}

/// Says in a word what changed about `add` of a server that lists this.
fn changed(lock: &Lockfile, of: &ToolsOf, tools: &[(&str, &str)]) -> &'static str {
    match lock.changed_tool(of, &list(tools), "add") {
        Ok(None) => "same",
        Ok(Some(changed)) => match changed.before {
            Before::Absent => "new",
            Before::Known(_) => "known",
            Before::Hash(_) => "hash",
            Before::OtherInLock(_) => "lock",
        },
        Err(error) => error.error_code.name(),
    }
}

const FIRST: &[(&str, &str)] = &[("add", "Adds"), ("count", "Counts")];

/// LM-07: the first list is pinned as a whole. Whatever a server says of a tool is part of its pin.
#[test]
fn each_change_of_a_tool_is_found() {
    let project = Project::new();
    let of = notes("a");
    assert_eq!(changed(&project.open("me"), &of, FIRST), "same");
    let tool = |fields: Value| {
        let mut tool = json!({ "name": "add", "description": "Adds", "inputSchema": {} });
        tool.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        Arc::new(vec![serde_json::from_value::<ToolDescriptor>(tool).unwrap()])
    };
    let is_changed = |fields: Value| {
        let lock = project.open("me");
        lock.changed_tool(&of, &tool(fields), "add").unwrap().is_some()
    };
    for (fields, expected) in [
        (json!({}), false),
        (json!({ "inputSchema": { "type": "object" } }), true),
        (json!({ "outputSchema": { "type": "object" } }), true),
        (json!({ "outputSchema": {} }), true),
        (json!({ "annotations": { "readOnlyHint": true } }), true),
        (json!({ "description": "Adds " }), true),
        (json!({ "description": "adds" }), true),
        (json!({ "description": "Adds\u{200b}" }), true),
    ] {
        assert_eq!(is_changed(fields.clone()), expected, "{fields}");
    }
    for (tools, expected) in [
        (FIRST, "same"),
        (&[("add", "Adds")][..], "same"),
        (&[("count", "Counts")], "TOOL_NOT_FOUND"),
        (&[("add", "Sends"), ("count", "Counts")], "known"),
    ] {
        assert_eq!(changed(&project.open("me"), &of, tools), expected, "{tools:?}");
    }
    // The order of names says nothing.
    let schema =
        |text: &str| json!({ "inputSchema": serde_json::from_str::<Value>(text).unwrap() });
    let change = tool(schema(r#"{"a":1,"b":2}"#));
    project.open("me").approve_tool(&of, &change[0], "terminal").unwrap();
    assert!(!is_changed(schema(r#"{"b":2,"a":1}"#)));
    assert!(is_changed(json!({})));
}

/// LM-07: an approval is for exactly one tool as it was shown; going back is another change.
#[test]
fn an_approval_is_for_one_tool_and_one_content() {
    let project = Project::new();
    let of = notes("a");
    let lock = project.open("me");
    let second = &[("add", "Sends"), ("count", "Sends"), ("more", "More")][..];
    assert_eq!(changed(&lock, &of, FIRST), "same");
    assert_eq!(changed(&lock, &of, second), "known");
    lock.approve_tool(&of, &list(second)[0], "terminal").unwrap();
    for lock in [lock, project.open("me")] {
        let tools = list(second);
        assert_eq!(changed(&lock, &of, second), "same");
        assert!(lock.changed_tool(&of, &tools, "count").unwrap().is_some());
        let more = lock.changed_tool(&of, &tools, "more").unwrap().unwrap();
        assert_eq!(more.before, Before::Absent);
        assert_eq!(changed(&lock, &of, FIRST), "known");
    }
    // The user approves each start, and so what it lists first.
    assert_eq!(changed(&project.open("me"), &notes("b"), second), "same");
    assert_eq!(changed(&project.open("me"), &notes("b"), FIRST), "known");
}

/// LM-07, LK-01, LK-04: the lock is in the workspace, where the server itself can write. It can make a pin stricter, and
/// never wider.
#[test]
fn an_edited_lock_allows_nothing() {
    let of = notes("a");
    let now = &[("add", "Sends")][..];
    let hash = json!(tool_hash(&list(now)[0]));
    type Edit = fn(&mut Value, &Value);
    let edits: [(Edit, &str, &str); 6] = [
        // The edit; what is found of the tool as it was, and of the changed one.
        (|lock, hash| lock["tools"]["notes"]["pinned"]["add"] = hash.clone(), "lock", "known"),
        (|lock, _| lock["tools"]["notes"]["pinned"] = json!({}), "same", "known"),
        (|lock, _| lock["tools"]["notes"]["start"] = json!(Integrity::of(b"b")), "same", "known"),
        (|lock, _| lock["tools"] = json!({}), "same", "known"),
        // As an older `pml` wrote it.
        (|lock, _| *lock = json!({ "version": 1, "servers": {} }), "same", "known"),
        (|_, _| {}, "same", "known"),
    ];
    for (number, (edit, as_before, as_now)) in edits.into_iter().enumerate() {
        let project = Project::new();
        assert_eq!(changed(&project.open("me"), &of, FIRST), "same");
        project.edit(|lock| edit(lock, &hash));
        assert_eq!(changed(&project.open("me"), &of, now), as_now, "{number}");
        assert_eq!(changed(&project.open("me"), &of, FIRST), as_before, "{number}");
    }
    // The lock of a colleague: this user has seen nothing yet, and is asked about what differs from it.
    let project = Project::new();
    assert_eq!(changed(&project.open("me"), &of, FIRST), "same");
    assert_eq!(changed(&project.open("other"), &of, now), "hash");
    let lock = project.open("other");
    assert!(lock.changed_tool(&of, &list(FIRST), "count").unwrap().is_some());
    assert_eq!(changed(&project.open("third"), &of, FIRST), "same");
    project.edit(|lock| lock["tools"]["notes"]["pinned"]["add"] = hash.clone());
    assert_eq!(changed(&project.open("third"), &of, now), "known");
}

/// LK-02, LK-03: a pin that cannot be read stops the call; it is never treated as none.
#[test]
fn a_malformed_pin_is_an_error() {
    for tools in [
        r#"{"notes":{"start":"sha256-AA==","pinned":{}}}"#,
        r#"{"notes":{"pinned":{}}}"#,
        r#"{"notes":{"start":"START","pinned":{"add":""}}}"#,
        r#"{"notes":{"start":"START","pinned":{"add":"md5-1B2M2Y8AsgTpgAmY7PhCfg=="}}}"#,
        r#"{"notes":{"start":"START","pinned":{"add":null}}}"#,
        r#"{"notes":{"start":"START","pinned":{"add":"START","add":"START"}}}"#,
        r#"{"notes":{"start":"START","pinned":{},"more":1}}"#,
        "[]",
    ] {
        let project = Project::new();
        let of = notes("a");
        let lock = project.open("me");
        assert_eq!(changed(&lock, &of, FIRST), "same");
        let start = Integrity::of(b"a").to_string();
        let text =
            format!(r#"{{"version":1,"servers":{{}},"tools":{}}}"#, tools.replace("START", &start));
        std::fs::write(project.path(), text).unwrap();
        assert_eq!(changed(&lock, &of, FIRST), "CONFIG_INVALID", "{tools}");
    }
    // The user's own record counts no less.
    let project = Project::new();
    assert_eq!(changed(&project.open("me"), &notes("a"), FIRST), "same");
    for file in std::fs::read_dir(project.folder.path().join("me").join(FOLDER)).unwrap() {
        std::fs::write(file.unwrap().path(), "{").unwrap();
    }
    let lock = project.open("me");
    assert_eq!(changed(&lock, &notes("a"), FIRST), "CONFIG_INVALID");
    assert_eq!(lock.remove("notes").unwrap(), ["notes"]);
    assert_eq!(changed(&lock, &notes("a"), &[("add", "Sends")]), "same");
    lock.remove("other").unwrap_err();
}

/// CL-14: concurrent first lists and approvals of several processes lose nothing.
#[test]
fn concurrent_pins_lose_nothing() {
    let project = Project::new();
    let names: Vec<String> = (0..8).map(|n| format!("tool{n}")).collect();
    let tools: Vec<(&str, &str)> = names.iter().map(|name| (&**name, "Does it")).collect();
    std::thread::scope(|scope| {
        for (name, _) in &tools {
            let (project, tools) = (&project, &tools);
            scope.spawn(move || {
                let lock = project.open("me");
                let of = notes("a");
                lock.pin_first(&of, &[]).unwrap();
                let listed = list(tools);
                let tool = listed.iter().find(|tool| tool.name == *name).unwrap();
                lock.approve_tool(&of, tool, "terminal").unwrap();
            });
        }
    });
    let (lock, listed) = (project.open("me"), list(&tools));
    for name in &names {
        assert_eq!(lock.changed_tool(&notes("a"), &listed, name).unwrap(), None, "{name}");
    }
}

/// A lock that the next start could not read is not written.
#[test]
fn a_lock_is_never_too_large_to_be_read() {
    let project = Project::new();
    let lock = project.open("me");
    let long = "x".repeat(100);
    let names: Vec<String> = (0..8_000).map(|n| format!("{long}{n}")).collect();
    let tools: Vec<(&str, &str)> = names.iter().map(|name| (&**name, "")).collect();
    let error = lock.pin_first(&notes("a"), &list(&tools)).unwrap_err();
    assert!(error.message.contains("larger than 1 MiB"), "{error:?}");
    assert_eq!(changed(&lock, &notes("a"), FIRST), "same");
}
