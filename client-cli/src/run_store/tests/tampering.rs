//! What `verify` finds in a store that somebody changed.

use super::*;

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
        for change in [
            "body = body || ' '",
            "body = ' ' || body",
            "body = body || body",
            "body = upper(body)",
            "body = substr(body, 1, length(body) - 1)",
            "body = substr(body, 1, length(body) / 2) || '~' || substr(body, length(body) / 2 + 2)",
            "body = replace(body, '\"type\"', '\"kind\"')",
            "body = (SELECT body FROM records AS other WHERE other.seq <> records.seq LIMIT 1)",
            "hash = (SELECT hash FROM records AS other WHERE other.seq <> records.seq LIMIT 1)",
            "hash = cast(substr(hash, 1, 31) AS BLOB)",
            "hash = cast(iif(substr(hash, 1, 1) = x'01', x'02', x'01') || substr(hash, 2) AS BLOB)",
            "run_id = 'zero'",
            "type = 'none'",
            "seq = -seq",
        ] {
            let first = if change == "seq = -seq" { -seq } else { seq };
            tamperings.push((format!("UPDATE records SET {change} WHERE seq = {seq}"), first));
        }
    }
    for (sql, seq) in [
        // Two records change places.
        ("UPDATE records SET seq = -seq WHERE seq IN (4, 6); UPDATE records SET seq = 10 + seq WHERE seq < 0", 4),
        // A copy is inserted, and the rest moves.
        ("UPDATE records SET seq = seq + 100 WHERE seq > 5; UPDATE records SET seq = seq - 99 WHERE seq > 100;
          INSERT INTO records (seq, body, hash, run_id, type) SELECT 6, body, hash, run_id, type FROM records WHERE seq = 5", 6),
        ("INSERT INTO records (seq, body, hash, run_id, type) SELECT 12, body, hash, run_id, type FROM records WHERE seq = 5", 12),
        ("INSERT INTO records (seq, body, hash, type) VALUES (0, '{}', zeroblob(32), '')", 0),
        ("INSERT INTO records (seq, body, hash, type) VALUES (-9, '[]', zeroblob(32), '')", -9),
        ("UPDATE records SET seq = seq + 1000", 1),
        ("UPDATE records SET body = '{}' WHERE seq = 7", 7),
        ("UPDATE records SET hash = x'00' WHERE seq = 7", 7),
        ("UPDATE records SET body = body || ' ' WHERE seq = 7", 7),
        // What it is found by.
        ("UPDATE records SET run_id = 'two' WHERE seq = 4", 4),
        ("UPDATE records SET run_id = NULL WHERE seq = 4", 4),
        ("UPDATE records SET run_id = 'one' WHERE seq = 1", 1),
        ("UPDATE records SET type = 'approval' WHERE seq = 4", 4),
    ] {
        tamperings.push((sql.to_owned(), seq));
    }
    assert!(tamperings.len() >= 200, "{}", tamperings.len());
    let project = Project::new();
    write_run(&project.open().unwrap(), "one", CALLS).await;
    project.settled();
    let original = std::fs::read(project.file()).unwrap();
    for (sql, seq) in tamperings {
        let verified = project.verify();
        assert_eq!((verified.records, verified.faults), (last, vec![]));
        project.tamper(&sql);
        let (found, reason) = project.fault().unwrap_or_else(|| panic!("not found: {sql}"));
        assert_eq!(found, Some(seq), "{sql}: {reason}");
        project.settled();
        std::fs::write(project.file(), &original).unwrap();
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
    let mut hash = Integrity::from_bytes([0; 32]);
    let mut sql = String::new();
    for (seq, body) in &rows {
        let body = body.replace("filesystem:read_file", "filesystem:list_files");
        hash = chain::chained(hash, *seq, &body);
        let hex: String = hash.into_bytes().iter().map(|byte| format!("{byte:02x}")).collect();
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
    let forged = chain::chained(hash, seq + 1, &body).into_bytes();
    let insert = "INSERT INTO records (seq, body, hash, run_id, type) VALUES (?1, ?2, ?3, 'one', 'run_began')";
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
