//! The store on a real file: what it stores, who may change it, and what `verify` finds.

use std::os::unix::fs::PermissionsExt as _;

use protocol::redaction::keys_in_use;
use rusqlite::Connection;
use serde_json::json;

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
    fn last(&self) -> (i64, [u8; 32]) {
        let sql = "SELECT seq, hash FROM records ORDER BY seq DESC LIMIT 1";
        self.raw().query_row(sql, [], |row| Ok((row.get(0)?, row.get(1)?))).unwrap()
    }

    fn reader(&self) -> Reader {
        RunStore::reader(&self.workspace()).unwrap().unwrap()
    }

    /// Opens the file as somebody with an SQLite shell would.
    fn raw(&self) -> Connection {
        Connection::open(self.file()).unwrap()
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

/// Writes a run of `calls` calls, each with a small and the last with a large result: `2 + 2 * calls` records.
async fn write_run(store: &RunStore, run: &str, calls: u64) {
    let content = |value: Value| store.content(&value).unwrap();
    let (at, run) = (now(), run.to_owned());
    let began = RunBegan {
        at: at.clone(),
        run: run.clone(),
        mode: "run".to_owned(),
        pml: "0".to_owned(),
        code: content(json!("return 1")),
        args: content(json!({ "z": 1, "a": { "y": 1.5, "b": null } })),
        plan: content(json!({ "dag": { "tasks": [] } })),
        policy: content(json!({ "rules": { "allow": ["*"] } })),
    };
    store.append(Record::RunBegan(began)).await.unwrap();
    for call in 1..=calls {
        let text = "x".repeat(if call == calls { 20_000 } else { 10 });
        let began = CallBegan {
            at: at.clone(),
            run: run.clone(),
            call: call.to_string(),
            tool: "filesystem:read_file".to_owned(),
            routing: "client".to_owned(),
            args: content(json!({ "path": call })),
            decision: "`allow` has `*` in `.pml.json`".to_owned(),
        };
        store.append(Record::CallBegan(began)).await.unwrap();
        let ended = CallEnded {
            at: at.clone(),
            run: run.clone(),
            call: call.to_string(),
            status: Status::Success,
            output: Some(content(json!(text))),
            error: None,
        };
        store.append(Record::CallEnded(ended)).await.unwrap();
    }
    let ended =
        RunEnded { at, run, status: Status::Success, output: Some(content(json!(1))), error: None };
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
        error: Failure { code: "PERMISSION_DENIED".to_owned(), message: "no".to_owned() },
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

/// RP-01: the first changed, removed, inserted or moved record is named.
#[tokio::test]
async fn a_tampered_store_is_named_at_its_first_bad_record() {
    const CALLS: u64 = 4;
    let last = 3 + 2 * i64::try_from(CALLS).unwrap();
    let mut tamperings: Vec<(String, i64)> = Vec::new();
    for seq in 1..=last {
        tamperings.push((format!("DELETE FROM records WHERE seq = {seq}"), seq));
        let edit = "body = replace(body, '\"at\":\"2', '\"at\":\"1')";
        tamperings.push((format!("UPDATE records SET {edit} WHERE seq = {seq}"), seq));
        tamperings.push((format!("UPDATE records SET hash = zeroblob(32) WHERE seq = {seq}"), seq));
        tamperings.push((format!("DELETE FROM records WHERE seq >= {seq}"), seq));
    }
    for (sql, seq) in [
        // Two records change places.
        ("UPDATE records SET seq = -seq WHERE seq IN (4, 6); UPDATE records SET seq = 10 + seq WHERE seq < 0", 4),
        // A copy is inserted, and the rest moves.
        ("UPDATE records SET seq = seq + 100 WHERE seq > 5; UPDATE records SET seq = seq - 99 WHERE seq > 100;
          INSERT INTO records (seq, body, hash) SELECT 6, body, hash FROM records WHERE seq = 5", 6),
        ("INSERT INTO records (seq, body, hash) SELECT 12, body, hash FROM records WHERE seq = 5", 12),
        ("INSERT INTO records (seq, body, hash) VALUES (0, '{}', zeroblob(32))", 0),
        ("INSERT INTO records (seq, body, hash) VALUES (-9, '[]', zeroblob(32))", -9),
        ("UPDATE records SET seq = seq + 1000", 1),
        ("UPDATE records SET body = '{}' WHERE seq = 7", 7),
        ("UPDATE records SET hash = x'00' WHERE seq = 7", 7),
        ("UPDATE records SET body = body || ' ' WHERE seq = 7", 7),
    ] {
        tamperings.push((sql.to_owned(), seq));
    }
    assert!(tamperings.len() >= 40);
    for (sql, seq) in tamperings {
        let project = Project::new();
        write_run(&project.open().unwrap(), "one", CALLS).await;
        assert_eq!(project.verify().records, last);
        project.tamper(&sql);
        let (found, reason) = project.fault().unwrap_or_else(|| panic!("not found: {sql}"));
        assert_eq!(found, Some(seq), "{sql}: {reason}");
    }
}

/// RP-01: a forged chain of valid hashes is found by its end, which is known from elsewhere.
#[tokio::test]
async fn a_chain_that_was_computed_again_is_found() {
    let project = Project::new();
    write_run(&project.open().unwrap(), "one", 2).await;
    let rows: Vec<(i64, String)> = {
        let database = project.raw();
        let mut rows = database.prepare("SELECT seq, body FROM records ORDER BY seq").unwrap();
        let rows = rows.query_map([], |row| Ok((row.get(0)?, row.get(1)?))).unwrap();
        rows.collect::<Result<_, _>>().unwrap()
    };
    let mut hash = [0; 32];
    let mut sql = String::new();
    for (seq, body) in &rows {
        let body = body.replace("filesystem:read_file", "filesystem:list_files");
        hash = verify::chained(&hash, *seq, &body);
        let hex: String = hash.iter().map(|byte| format!("{byte:02x}")).collect();
        let body = body.replace('\'', "''");
        sql += &format!("UPDATE records SET body = '{body}', hash = x'{hex}' WHERE seq = {seq};");
    }
    project.tamper(&sql);
    let last = i64::try_from(rows.len()).unwrap();
    assert_eq!(project.fault().unwrap().0, Some(last));
    // It stays on record after `pml` has written again.
    write_run(&project.open().unwrap(), "two", 1).await;
    write_run(&project.open().unwrap(), "three", 1).await;
    assert_eq!(project.fault().unwrap().0, Some(last));
}

/// A lost end is noticed, also after `pml` has written more records than were lost.
#[tokio::test]
async fn a_lost_end_stays_on_record() {
    let project = Project::new();
    write_run(&project.open().unwrap(), "one", 2).await;
    project.tamper("DELETE FROM records WHERE seq > 5");
    for run in ["two", "three", "four"] {
        write_run(&project.open().unwrap(), run, 1).await;
        let (seq, reason) = project.fault().unwrap();
        assert_eq!(seq, Some(6));
        assert!(
            reason.starts_with("is missing, like all records up to 7; noticed at 2"),
            "{reason}"
        );
    }
    // The runs are still there to be read.
    assert_eq!(project.reader().last(9).unwrap().len(), 4);
}

/// A store that is gone or replaced is noticed.
#[tokio::test]
async fn a_replaced_store_is_noticed() {
    let project = Project::new();
    write_run(&project.open().unwrap(), "one", 1).await;
    let other = Project::new();
    write_run(&other.open().unwrap(), "other", 1).await;
    other.raw().execute_batch("PRAGMA wal_checkpoint(TRUNCATE)").unwrap();
    for name in ["runs.db", "runs.db-wal", "runs.db-shm"] {
        let _ = std::fs::remove_file(project.root().join(".pml").join(name));
    }
    let (seq, reason) = project.fault().unwrap();
    assert_eq!((seq, reason.as_str()), (Some(1), "is missing, like all records up to 5"));
    std::fs::copy(other.file(), project.file()).unwrap();
    assert_eq!(project.fault().unwrap().0, Some(1));
    write_run(&project.open().unwrap(), "two", 1).await;
    assert_eq!(project.fault().unwrap().0, Some(1));
    // Moved away by the user: a new store begins, and says that there was another one.
    std::fs::remove_dir_all(project.root().join(".pml")).unwrap();
    write_run(&project.open().unwrap(), "three", 1).await;
    let verified = project.verify();
    assert_eq!((verified.faults, verified.records), (vec![], 5));
    // Both stores that were here before are named.
    assert_eq!(verified.earlier.len(), 2, "{:?}", verified.earlier);
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

/// A changed or missing file of a large value is named by its record.
#[tokio::test]
async fn large_values_are_verified() {
    for damage in ["changed", "missing", "link"] {
        let project = Project::new();
        write_run(&project.open().unwrap(), "one", 2).await;
        let folder = project.root().join(".pml/contents");
        let file = std::fs::read_dir(folder).unwrap().next().unwrap().unwrap().path();
        match damage {
            "changed" => std::fs::write(&file, "\"y\"").unwrap(),
            "missing" => std::fs::remove_file(&file).unwrap(),
            _ => {
                let elsewhere = project.folder.path().join("elsewhere");
                std::fs::rename(&file, &elsewhere).unwrap();
                std::os::unix::fs::symlink(elsewhere, &file).unwrap();
            }
        }
        let (seq, reason) = project.fault().unwrap();
        assert_eq!(seq, Some(6), "{damage}");
        assert!(reason.contains(".pml/contents/"), "{reason}");
        // The next write of the same value repairs the file.
        write_run(&project.open().unwrap(), "two", 1).await;
        assert_eq!(project.fault(), None, "{damage}");
    }
}

/// RP-01: records that somebody else appended, with the right hashes, are noticed.
#[tokio::test]
async fn forged_records_at_the_end_are_noticed() {
    let project = Project::new();
    write_run(&project.open().unwrap(), "one", 1).await;
    let (seq, hash) = project.last();
    let body = {
        let sql = "SELECT body FROM records WHERE seq = 2";
        project.raw().query_row(sql, [], |row| row.get::<_, String>(0)).unwrap()
    };
    let forged = verify::chained(&hash, seq + 1, &body);
    let insert = "INSERT INTO records (seq, body, hash) VALUES (?1, ?2, ?3)";
    project.raw().execute(insert, (seq + 1, &body, forged)).unwrap();
    assert_eq!(project.fault(), Some((Some(seq + 1), "was not written by `pml`".to_owned())));
    // It stays on record.
    write_run(&project.open().unwrap(), "two", 1).await;
    let (found, reason) = project.fault().unwrap();
    assert_eq!(found, Some(seq + 1));
    assert!(reason.starts_with("was not written by `pml`; noticed at "), "{reason}");
}

/// RP-01: a change during a session is noticed, too, and later changes after it.
#[tokio::test]
async fn changes_during_a_session_are_noticed() {
    let project = Project::new();
    let store = project.open().unwrap();
    write_run(&store, "one", 2).await;
    project.tamper("DELETE FROM records WHERE seq > 5");
    write_run(&store, "two", 2).await;
    let (found, reason) = project.fault().unwrap();
    assert_eq!(found, Some(6), "{reason}");
    // The loss does not hide what comes after it.
    project.tamper("UPDATE records SET body = '{}' WHERE seq = 8");
    let faults: Vec<_> = project.verify().faults.into_iter().map(|fault| fault.seq).collect();
    assert_eq!(faults, [Some(6), Some(8)]);
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
        error: Failure { code: String::new(), message: String::new() },
    };
    let error = store.append(Record::CallRefused(began.clone())).await.unwrap_err();
    assert!(matches!(*error, StoreError::Gone), "{error}");
    // Also if another one is in its place.
    write_run(&project.open().unwrap(), "two", 1).await;
    store.append(Record::CallRefused(began)).await.unwrap_err();
    let verified = project.verify();
    assert_eq!((verified.faults, verified.earlier.len()), (vec![], 1));
}

/// What stands beside the records is checked, too.
#[tokio::test]
async fn altered_tables_are_refused() {
    for (sql, name) in [
        ("DROP TRIGGER records_are_not_deleted", "trigger records_are_not_deleted"),
        ("DROP VIEW approvals; CREATE VIEW approvals AS SELECT 1", "view approvals"),
        ("CREATE TRIGGER extra AFTER INSERT ON records BEGIN SELECT 1; END", "trigger extra"),
        ("CREATE TABLE extra (x)", "table extra"),
        // A name that SQLite reserves, so that it hides from a list by name.
        (
            "PRAGMA writable_schema = 1;
             INSERT INTO sqlite_schema VALUES ('trigger', 'sqlite_x', 'records', 0,
                 'CREATE TRIGGER sqlite_x BEFORE INSERT ON records BEGIN SELECT RAISE(IGNORE); END');",
            "trigger sqlite_x",
        ),
    ] {
        let project = Project::new();
        write_run(&project.open().unwrap(), "one", 1).await;
        {
            let database = project.raw();
            let defensive = rusqlite::config::DbConfig::SQLITE_DBCONFIG_DEFENSIVE;
            database.set_db_config(defensive, false).unwrap();
            database.execute_batch(sql).unwrap();
        }
        assert_eq!(project.fault(), Some((None, format!("was altered: {name} differs"))), "{sql}");
        let error = project.open().err().unwrap().to_string();
        assert!(error.contains("`runs.db-wal`"), "{error}");
    }
    let project = Project::new();
    write_run(&project.open().unwrap(), "one", 1).await;
    project
        .raw()
        .execute_batch(
            "ALTER TABLE records RENAME TO old; CREATE VIEW records AS SELECT * FROM old",
        )
        .unwrap();
    let error = RunStore::verify(&project.workspace(), &project.records()).unwrap_err().to_string();
    assert!(error.contains("its table was altered"), "{error}");
}

/// UP-07: a store of a newer version, and a file that is none, are refused and stay as they are.
#[tokio::test]
async fn a_file_of_a_newer_version_is_left_alone() {
    let project = Project::new();
    write_run(&project.open().unwrap(), "one", 1).await;
    project.raw().execute_batch("PRAGMA user_version = 2; PRAGMA journal_mode = DELETE").unwrap();
    let newer = std::fs::read(project.file()).unwrap();
    let other = {
        let path = project.folder.path().join("other.db");
        Connection::open(&path).unwrap().execute_batch("CREATE TABLE t (x)").unwrap();
        std::fs::read(path).unwrap()
    };
    let text = b"not a database, and longer than one hundred bytes. ".repeat(4);
    for (bytes, why) in [
        (newer, "was written by a newer `pml` (version 2 of its form)"),
        (other, "is not a run store"),
        (text, "file is not a database"),
    ] {
        std::fs::write(project.file(), &bytes).unwrap();
        let error = project.open().err().unwrap().to_string();
        assert!(error.contains(why), "{error}");
        assert_eq!(std::fs::read(project.file()).unwrap(), bytes, "{why}");
    }
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
