//! The store on a real file: what it stores, who may change it, and what `verify` finds.

mod erasing;
mod exported;
mod tampering;

use std::os::unix::fs::PermissionsExt as _;

use protocol::Integrity;
use protocol::redaction::keys_in_use;
use rusqlite::Connection;
use serde_json::json;
use tokio::sync::Barrier;

use super::record::{CallBegan, CallEnded, CallRefused, Failure, RunBegan, RunEnded, Status, now};
use super::*;

/// A project with a run store.
struct Project {
    folder: tempfile::TempDir,
}

impl Project {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("work")).unwrap();
        Self { folder }
    }

    fn root(&self) -> PathBuf {
        self.folder.path().canonicalize().unwrap().join("work")
    }

    fn records(&self) -> PathBuf {
        self.folder.path().join("records")
    }

    fn file(&self) -> PathBuf {
        self.root().join(".pml/runs.db")
    }

    fn workspace(&self) -> Workspace {
        Workspace::open(&self.root()).unwrap()
    }

    fn open(&self) -> Result<RunStore, StoreError> {
        RunStore::open(&self.workspace(), &self.records())
    }

    fn verify(&self) -> Verified {
        RunStore::verify(&self.workspace(), &self.records()).unwrap().unwrap()
    }

    /// Returns the first fault.
    fn fault(&self) -> Option<(Option<i64>, String)> {
        self.verify().faults.into_iter().next().map(|fault| (fault.seq, fault.reason))
    }

    /// Returns the hash of the last record.
    fn last(&self) -> (i64, Integrity) {
        let sql = "SELECT seq, hash FROM records ORDER BY seq DESC LIMIT 1";
        self.raw()
            .query_row(sql, [], |row| Ok((row.get(0)?, Integrity::from_bytes(row.get(1)?))))
            .unwrap()
    }

    fn reader(&self) -> Reader {
        RunStore::reader(&self.workspace()).unwrap().unwrap()
    }

    /// Opens the file as somebody with an SQLite shell would.
    fn raw(&self) -> Connection {
        let database = Connection::open(self.file()).unwrap();
        // Nothing has to survive a loss of power, and hundreds of edits are made.
        database.pragma_update(None, "synchronous", "OFF").unwrap();
        database
    }

    /// Writes everything into the database file itself. Other connections may still be closing it.
    fn settled(&self) {
        let mut attempts = 0;
        while let Err(error) = self.raw().execute_batch("PRAGMA journal_mode = DELETE") {
            attempts += 1;
            assert!(attempts < 500, "{error}");
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
    }

    /// Changes the file without the triggers, which are restored afterwards.
    fn tamper(&self, sql: &str) {
        let database = self.raw();
        let triggers: Vec<(String, String)> = database
            .prepare("SELECT name, sql FROM sqlite_schema WHERE type = 'trigger'")
            .unwrap()
            .query_map([], |row| Ok((row.get(0)?, row.get(1)?)))
            .unwrap()
            .collect::<Result<_, _>>()
            .unwrap();
        assert_eq!(triggers.len(), 2);
        for (name, _) in &triggers {
            database.execute_batch(&format!("DROP TRIGGER {name}")).unwrap();
        }
        database.execute_batch(sql).unwrap();
        for (_, sql) in &triggers {
            database.execute_batch(sql).unwrap();
        }
    }
}

/// Writes a run of `calls` calls, each with a small and the last with a large result: `2 + 2 * calls` records. Nobody
/// waits for the end of a call.
async fn write_run(store: &RunStore, run: &str, calls: u64) {
    write_run_in_turns(store, run, calls, &Barrier::new(1)).await;
}

/// The same; each call waits for those that take turns with it.
async fn write_run_in_turns(store: &RunStore, run: &str, calls: u64, turns: &Barrier) {
    let content = |value: Value| store.content(&value).unwrap();
    let (at, run) = (now(), run.to_owned());
    let began = RunBegan {
        at: at.clone(),
        run: run.clone(),
        mode: "run".to_owned(),
        of: None,
        pml: "0".to_owned(),
        code: content(json!("return 1")),
        args: content(json!({ "z": 1, "a": { "y": 1.5, "b": null } })),
        plan: content(json!({ "dag": { "tasks": [] } })),
        policy: content(json!({ "rules": { "allow": ["*"] } })),
        trace: None,
    };
    store.append(Record::RunBegan(began)).await.unwrap();
    let lost = Arc::default();
    for call in 1..=calls {
        turns.wait().await;
        let text = "x".repeat(if call == calls { 20_000 } else { 10 });
        let began = CallBegan {
            at: at.clone(),
            run: run.clone(),
            call: call.to_string(),
            tool: "filesystem:read_file".to_owned(),
            routing: "client".to_owned(),
            native: true,
            args: content(json!({ "path": call })),
            decision: "`allow` has `*` in `.pml.json`".to_owned(),
            epoch_ms: None,
        };
        store.append(Record::CallBegan(began)).await.unwrap();
        let ended = CallEnded {
            at: at.clone(),
            run: run.clone(),
            call: call.to_string(),
            status: Status::Success,
            output: Some(content(json!(text))),
            error: None,
            refused_connections: None,
            at_ms: Some(call),
        };
        store.queue(Record::CallEnded(ended), &lost).unwrap();
    }
    let ended = RunEnded {
        at,
        run,
        status: Status::Success,
        output: Some(content(json!(1))),
        error: None,
        console: None,
    };
    store.append(Record::RunEnded(ended)).await.unwrap();
}

#[tokio::test]
async fn runs_are_read_back_as_they_were_written() {
    let project = Project::new();
    assert!(RunStore::reader(&project.workspace()).unwrap().is_none());
    assert!(RunStore::verify(&project.workspace(), &project.records()).unwrap().is_none());
    // Reading creates nothing.
    assert!(!project.root().join(".pml").exists() && !project.records().exists());
    let store = project.open().unwrap();
    write_run(&store, "one", 2).await;
    let refused = CallRefused {
        at: now(),
        run: "two".to_owned(),
        call: "1".to_owned(),
        tool: "shell:exec".to_owned(),
        args: store.content(&json!({})).unwrap(),
        error: Failure {
            code: "PERMISSION_DENIED".to_owned(),
            message: "no".to_owned(),
            redacted: false,
            erased: false,
        },
        at_ms: None,
    };
    write_run(&store, "two", 1).await;
    store.append(Record::CallRefused(refused)).await.unwrap();
    let reader = project.reader();
    let runs = reader.last(10).unwrap();
    assert_eq!(runs.iter().map(|run| run.began.run.as_str()).collect::<Vec<_>>(), ["two", "one"]);
    assert_eq!(
        runs[0].calls.iter().map(reader::Call::status).collect::<Vec<_>>(),
        ["success", "denied"]
    );
    assert_eq!(runs[0].tools(), ["filesystem:read_file", "shell:exec"]);
    let args = reader.content(&runs[1].began.args).unwrap();
    assert_eq!(args, r#"{"a":{"b":null,"y":1.5},"z":1}"#);
    assert_eq!(reader.ids("t").unwrap(), ["two"]);
    assert_eq!(reader.ids("").unwrap().len(), 2);
    // The views have the same facts, for every SQLite client.
    let database = project.raw();
    let row: (String, String, i64, i64, i64) = database
        .query_row(
            "SELECT mode, status, total_steps, completed_steps, denied_steps FROM runs WHERE run_id = 'two'",
            [],
            |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?, row.get(4)?)),
        )
        .unwrap();
    assert_eq!(row, ("run".to_owned(), "completed".to_owned(), 2, 1, 1));
    let row: (String, Option<String>, Option<String>) = database
        .query_row(
            "SELECT status, policy_decision, output_json FROM tool_results WHERE call_id = 'one/1'",
            [],
            |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)),
        )
        .unwrap();
    assert_eq!(row.0, "success");
    assert_eq!(row.1.as_deref(), Some("`allow` has `*` in `.pml.json`"));
    assert_eq!(row.2.as_deref(), Some(r#""xxxxxxxxxx""#));
}

/// RP-09: only the user can read the store.
#[tokio::test]
async fn the_files_are_private() {
    let project = Project::new();
    std::fs::create_dir(project.root().join(".pml")).unwrap();
    std::fs::write(project.file(), "").unwrap();
    std::fs::set_permissions(project.file(), std::fs::Permissions::from_mode(0o666)).unwrap();
    let store = project.open().unwrap();
    write_run(&store, "one", 1).await;
    let mut files = 0;
    for folder in [project.root().join(".pml"), project.root().join(".pml/contents")] {
        for entry in std::fs::read_dir(folder).unwrap() {
            let entry = entry.unwrap();
            let found = entry.metadata().unwrap();
            let expected = if found.is_dir() { 0o700 } else { 0o600 };
            assert_eq!(found.permissions().mode() & 0o777, expected, "{:?}", entry.path());
            files += usize::from(found.is_file());
        }
    }
    // The database, its log, its index of the log, one large value, and `.gitignore`.
    assert_eq!(files, 5);
}

/// RP-03: no statement changes or deletes a record.
#[tokio::test]
async fn records_are_append_only() {
    let project = Project::new();
    write_run(&project.open().unwrap(), "one", 1).await;
    let database = project.raw();
    for sql in [
        "UPDATE records SET body = '{}' WHERE seq = 2",
        "UPDATE records SET seq = 100 WHERE seq = 2",
        "DELETE FROM records WHERE seq = 5",
        "DELETE FROM records",
        "UPDATE runs SET status = 'failed'",
        "DELETE FROM tool_calls",
    ] {
        database.execute_batch(sql).expect_err(sql);
    }
    assert_eq!(project.fault(), None);
}

/// A project that was copied with its store has no known end until `pml` writes there.
#[tokio::test]
async fn a_copied_store_is_used() {
    let project = Project::new();
    write_run(&project.open().unwrap(), "one", 1).await;
    std::fs::rename(project.records(), project.folder.path().join("elsewhere")).unwrap();
    assert!(!project.verify().is_end_known);
    write_run(&project.open().unwrap(), "two", 1).await;
    let verified = project.verify();
    assert!(verified.is_end_known && verified.faults.is_empty());
    assert_eq!(verified.runs, 2);
}

/// Nothing is written into a deleted store: nobody could read it.
#[tokio::test]
async fn a_deleted_store_is_not_written_to() {
    let project = Project::new();
    let store = project.open().unwrap();
    write_run(&store, "one", 1).await;
    assert!(store.is_there());
    std::fs::remove_dir_all(project.root().join(".pml")).unwrap();
    assert!(!store.is_there());
    let began = CallRefused {
        at: now(),
        run: "one".to_owned(),
        call: "1".to_owned(),
        tool: "x:y".to_owned(),
        args: store.content(&json!({})).unwrap(),
        error: Failure {
            code: String::new(),
            message: String::new(),
            redacted: false,
            erased: false,
        },
        at_ms: None,
    };
    let error = store.append(Record::CallRefused(began.clone())).await.unwrap_err();
    assert!(matches!(*error, StoreError::Gone), "{error}");
    let lost = Arc::default();
    store.queue(Record::CallRefused(began.clone()), &lost).unwrap();
    store.flush().await.unwrap_err();
    assert!(matches!(**lost.get().unwrap(), StoreError::Gone), "{lost:?}");
    // Also if another one is in its place.
    write_run(&project.open().unwrap(), "two", 1).await;
    store.append(Record::CallRefused(began)).await.unwrap_err();
    let verified = project.verify();
    assert_eq!((verified.faults, verified.earlier.len()), (vec![], 1));
}

/// A record is not stored without the one that it follows, although the store is usable again by then.
#[tokio::test]
async fn nothing_follows_a_lost_record() {
    let project = Project::new();
    let store = project.open().unwrap();
    let stored = project.last().0;
    let call = |call: &str| {
        Record::CallRefused(CallRefused {
            at: now(),
            run: "one".to_owned(),
            call: call.to_owned(),
            tool: "x:y".to_owned(),
            args: store.content(&json!({})).unwrap(),
            error: Failure {
                code: String::new(),
                message: String::new(),
                redacted: false,
                erased: false,
            },
            at_ms: None,
        })
    };
    let (lost, later, other) = (Arc::default(), Arc::default(), Arc::default());
    let away = project.root().join("away");
    std::fs::rename(project.file(), &away).unwrap();
    store.queue(call("1"), &lost).unwrap();
    store.flush().await.unwrap_err();
    std::fs::rename(&away, project.file()).unwrap();
    store.queue_after(&[&other, &lost], call("2"), &later).unwrap();
    let error = store.append_after(&[&lost], call("3")).await.unwrap_err();
    assert!(matches!(*error, StoreError::Gone), "{error}");
    assert!(matches!(**later.get().unwrap(), StoreError::Gone), "{later:?}");
    store.append_after(&[&other], call("4")).await.unwrap();
    drop(store);
    assert_eq!((project.last().0, project.fault()), (stored + 1, None));
}

/// UP-07: a store of a newer version, and a file that is none, are refused and stay as they are.
#[tokio::test]
async fn a_file_of_a_newer_version_is_left_alone() {
    let project = Project::new();
    write_run(&project.open().unwrap(), "one", 1).await;
    let (raw, mut attempts) = (project.raw(), 0);
    // The thread of the store above may still be closing the file, and SQLite does not wait for that.
    while let Err(error) =
        raw.execute_batch("PRAGMA user_version = 3; PRAGMA journal_mode = DELETE")
    {
        attempts += 1;
        assert!(attempts < 500, "{error}");
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    drop(raw);
    let newer = std::fs::read(project.file()).unwrap();
    let other = {
        let path = project.folder.path().join("other.db");
        Connection::open(&path).unwrap().execute_batch("CREATE TABLE t (x)").unwrap();
        std::fs::read(path).unwrap()
    };
    let text = b"not a database, and longer than one hundred bytes. ".repeat(4);
    for (bytes, why) in [
        (newer, "was written by a newer `pml` (version 3 of its form)"),
        (other, "is not a run store"),
        (text, "file is not a database"),
    ] {
        std::fs::write(project.file(), &bytes).unwrap();
        let error = project.open().err().unwrap().to_string();
        assert!(error.contains(why), "{error}");
        assert_eq!(std::fs::read(project.file()).unwrap(), bytes, "{why}");
    }
}

/// A store of the first version is read as it is. `pml` turns it into one of the present version before it writes.
#[tokio::test]
async fn an_older_store_is_upgraded() {
    let project = Project::new();
    write_run(&project.open().unwrap(), "one", 2).await;
    let first = concat!(include_str!("schema/1.sql"), include_str!("schema/all.sql"));
    let older = format!(
        "DROP VIEW runs; DROP VIEW tool_calls; DROP VIEW tool_results; DROP VIEW approvals;
         DROP TRIGGER records_are_not_changed; DROP TRIGGER records_are_not_deleted;
         DROP INDEX records_by_run; DROP INDEX runs_by_seq; ALTER TABLE records RENAME TO newer;
         {first}
         INSERT INTO records (seq, body, hash) SELECT seq, body, hash FROM newer;
         DROP TABLE newer; PRAGMA user_version = 1"
    );
    project.raw().execute_batch(&older).unwrap();
    let version = || -> i64 {
        project.raw().pragma_query_value(None, "user_version", |row| row.get(0)).unwrap()
    };
    assert_eq!((project.fault(), version()), (None, 1));
    assert_eq!(project.reader().last(9).unwrap().len(), 1);
    write_run(&project.open().unwrap(), "two", 1).await;
    assert_eq!((project.fault(), version()), (None, 2));
    let runs = project.reader().last(9).unwrap();
    assert_eq!(runs.iter().map(|run| run.calls.len()).collect::<Vec<_>>(), [1, 2]);

    // One that somebody altered stays as it is.
    let project = Project::new();
    write_run(&project.open().unwrap(), "one", 1).await;
    project.raw().execute_batch(&format!("{older}; DROP VIEW approvals")).unwrap();
    let error = project.open().err().unwrap().to_string();
    assert!(error.contains("view approvals differs"), "{error}");
}

/// A link in place of the folder, the file or the folder of values does not lead out of the workspace.
#[tokio::test]
async fn links_are_not_followed() {
    for name in [".pml", ".pml/runs.db", ".pml/contents"] {
        let project = Project::new();
        let elsewhere = project.folder.path().join("elsewhere");
        std::fs::create_dir(&elsewhere).unwrap();
        let link = project.root().join(name);
        std::fs::create_dir_all(link.parent().unwrap()).unwrap();
        std::os::unix::fs::symlink(&elsewhere, &link).unwrap();
        let stored = project.open().and_then(|store| store.content(&json!("x".repeat(20_000))));
        assert!(stored.is_err(), "{name}");
        assert_eq!(std::fs::read_dir(elsewhere).unwrap().count(), 0, "{name}");
    }
}

/// Several `pml` write to one store.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn concurrent_writers_make_one_chain() {
    let project = Arc::new(Project::new());
    let writers = (0..8).map(|writer| {
        let project = Arc::clone(&project);
        tokio::spawn(async move {
            let store = project.open().unwrap();
            write_run(&store, &format!("run-{writer}"), 5).await;
        })
    });
    for writer in writers.collect::<Vec<_>>() {
        writer.await.unwrap();
    }
    let verified = project.verify();
    assert_eq!((verified.faults, verified.runs, verified.records), (vec![], 8, 1 + 8 * 12));
    assert!(project.reader().last(8).unwrap().iter().all(|run| run.calls.len() == 5));
}

/// A store is in order at every instant, also while `pml` writes to it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_is_verified_while_it_is_written() {
    let project = Arc::new(Project::new());
    let store = project.open().unwrap();
    let writer = tokio::spawn(async move {
        for run in 0..40 {
            write_run(&store, &format!("run-{run}"), 5).await;
        }
    });
    let mut seen = Vec::new();
    while !writer.is_finished() {
        let verifying = Arc::clone(&project);
        let verified = tokio::task::spawn_blocking(move || verifying.verify()).await.unwrap();
        assert_eq!(verified.faults, []);
        seen.push(verified.records);
    }
    writer.await.unwrap();
    assert!(seen.windows(2).all(|pair| pair[0] <= pair[1]), "{seen:?}");
    assert_eq!(project.verify().records, 1 + 40 * 12);
}

/// Keys are removed before a value is hashed or stored.
#[tokio::test]
async fn keys_are_not_stored() {
    let key = "canary-8a1f2b3c4d5e6f";
    let _held = keys_in_use().hold(key);
    let project = Project::new();
    let store = project.open().unwrap();
    let text = json!({ "text": format!("{key} {}", "x".repeat(20_000)), key: 1 });
    let content = store.content(&text).unwrap();
    let stored = project.reader();
    assert!(!stored.content(&content).unwrap().contains(key));
    let error = protocol::ErrorBody::new(protocol::ErrorCode::ToolFailed, format!("bad {key}"));
    assert!(!Failure::of(&error).message.contains(key));
}
