//! What erasing leaves in the store and in its files, and what `verify` finds in an erased one.

use super::*;
use crate::run_store::reader::Run;
use crate::run_store::record::ValuesErased;

/// What every value of [`write_canaries`] contains.
const CANARY: &str = "heliotrope-55aa";

/// Writes a run whose values, small and large, contain the canary and `mark`. Other tests of this process hold keys like
/// `second`, which are removed from values.
async fn write_canaries(store: &RunStore, run: &str, mark: &str) {
    let (at, run) = (now(), run.to_owned());
    let content = |size: usize| {
        let text = format!("{CANARY} {mark} {}", "x".repeat(size));
        store.content(&json!({ "text": text })).unwrap()
    };
    let failure = || Failure {
        code: "TOOL_FAILED".to_owned(),
        message: format!("{CANARY} {mark}"),
        redacted: false,
        erased: false,
    };
    let began = RunBegan {
        at: at.clone(),
        run: run.clone(),
        mode: "run".to_owned(),
        of: None,
        pml: "0".to_owned(),
        code: content(20_000),
        args: content(0),
        plan: content(1),
        policy: store.content(&json!({ "rules": { "allow": ["*"] } })).unwrap(),
        trace: None,
    };
    store.append(Record::RunBegan(began)).await.unwrap();
    for call in ["1", "1.1", "2", "11"] {
        let began = CallBegan {
            at: at.clone(),
            run: run.clone(),
            call: call.to_owned(),
            tool: "filesystem:write_file".to_owned(),
            routing: "client".to_owned(),
            native: true,
            args: content(call.len() * 1000),
            decision: "`allow` has `*` in `.pml.json`".to_owned(),
            epoch_ms: None,
        };
        store.append(Record::CallBegan(began)).await.unwrap();
        let change = Change::Remove {
            path: format!("{CANARY} {mark} {call}"),
            before: KeptFile {
                bytes: 1,
                mode: 0o644,
                hash: Some(content(30_000 + call.len()).hash),
                not_kept: None,
            },
        };
        let (at, run) = (at.clone(), run.clone());
        let changing = FileChanging { at: at.clone(), run: run.clone(), call: call.into(), change };
        store.append(Record::FileChanging(changing)).await.unwrap();
        let ended = CallEnded {
            at: at.clone(),
            run: run.clone(),
            call: call.to_owned(),
            status: Status::Error,
            output: (call == "2").then(|| content(17_000)),
            error: (call != "2").then(failure),
            refused_connections: (call == "2").then(|| format!("{CANARY} {mark}")),
            at_ms: Some(1),
        };
        store.append(Record::CallEnded(ended)).await.unwrap();
    }
    let refused = CallRefused {
        at: at.clone(),
        run: run.clone(),
        call: "3".to_owned(),
        tool: "shell:exec".to_owned(),
        args: content(2),
        error: failure(),
        at_ms: None,
    };
    store.append(Record::CallRefused(refused)).await.unwrap();
    let approval = record::ApprovalGiven {
        at: at.clone(),
        asked_at: at.clone(),
        run: run.clone(),
        tool: "filesystem:write_file".to_owned(),
        args: content(1000),
        count: 1,
        reason: format!("{CANARY} {mark}"),
        shown_hash: None,
        answer: record::Answered::Once,
        by: None,
        covers: None,
    };
    store.append(Record::Approval(approval)).await.unwrap();
    let ended = RunEnded {
        at,
        run,
        status: Status::Error,
        output: Some(content(3)),
        error: Some(failure()),
        console: None,
    };
    store.append(Record::RunEnded(ended)).await.unwrap();
}

fn erase(project: &Project, run: &str, call: Option<&str>) -> Result<ErasedValues, StoreError> {
    let what = [Erasing { run: run.to_owned(), call: call.map(str::to_owned) }];
    RunStore::erase(&project.workspace(), &project.records(), &what)
}

/// Counts how often a text is in the files of the store.
fn sweep(project: &Project, text: &str) -> usize {
    let folder = project.root().join(".pml");
    let mut found = 0;
    for folder in [folder.clone(), folder.join("contents")] {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_file() {
                let bytes = std::fs::read(&path).unwrap();
                found += bytes.windows(text.len()).filter(|part| *part == text.as_bytes()).count();
            }
        }
    }
    found
}

/// The values of a run are in no file of the store any more, although another `pml` has it open. The chain is in order,
/// and says what was erased.
#[tokio::test]
async fn an_erased_run_is_in_no_file() {
    let project = Project::new();
    let store = project.open().unwrap();
    for run in ["quail", "stork", "heron"] {
        write_canaries(&store, run, &format!("{run}-mark")).await;
    }
    let (last, verified) = (project.last().0, project.verify());
    assert_eq!((verified.faults, verified.erasures), (vec![], vec![]));
    assert!(sweep(&project, "quail-mark") > 20 && sweep(&project, "stork-mark") > 20);
    let erased = erase(&project, "stork", None).unwrap();
    assert_eq!((erased.records, erased.shared), (16, 0), "{erased:?}");
    assert_eq!(sweep(&project, "stork-mark"), 0);
    let others = sweep(&project, "quail-mark") + sweep(&project, "heron-mark");
    assert_eq!((sweep(&project, CANARY), others > 40), (others, true));
    let verified = project.verify();
    assert_eq!((&verified.faults, verified.records), (&vec![], last + 1));
    let [ValuesErased { run, call: None, records, .. }] = &verified.erasures[..] else {
        panic!("{:?}", verified.erasures)
    };
    assert_eq!((run.as_str(), records.len()), ("stork", 16));
    // What is not a value stays.
    let reader = project.reader();
    let run = reader.run("stork").unwrap().unwrap();
    assert_eq!(run.calls.len(), 5);
    assert_eq!(run.erasures.len(), 1);
    assert!(run.began.code.erased && reader.content(&run.began.code).is_none());
    assert!(reader.content(&run.began.policy).is_some());
    assert_eq!(run.calls[0].status(), "error");
    // The store goes on, also for the `pml` that had it open.
    write_canaries(&store, "egret", "egret-mark").await;
    write_canaries(&project.open().unwrap(), "plover", "plover-mark").await;
    assert_eq!(project.fault(), None);
    // Again: there is nothing left.
    assert_eq!(erase(&project, "stork", None).unwrap(), ErasedValues::default());
    assert_eq!(project.verify().erasures.len(), 1);
    // What an interrupted erasure has left is removed then.
    let large = run.began.code.hash;
    let file =
        project.root().join(".pml/contents").join(crate::files::records::name_of_hash(large));
    std::fs::write(&file, "left").unwrap();
    assert_eq!(erase(&project, "stork", None).unwrap().files, 1);
    assert!(!file.exists());
    assert_eq!(erase(&project, "none", None).unwrap(), ErasedValues::default());
}

/// Who has read a run before it was erased cannot record its values again, as a replay of it.
#[tokio::test]
async fn an_erased_run_does_not_return_as_a_replay() {
    let project = Project::new();
    let store = project.open().unwrap();
    for run in ["quail", "stork", "heron"] {
        write_canaries(&store, run, &format!("{run}-mark")).await;
    }
    let replay = |of: &str| {
        let run = project.reader().run(of).unwrap().unwrap();
        let (began, mut ended) = (run.began, run.ended.unwrap());
        ended.run = format!("replay of {of}");
        let (run, mode) = (ended.run.clone(), record::REPLAY.to_owned());
        let began = RunBegan { run, mode, of: Some(of.to_owned()), ..began };
        vec![Record::RunBegan(began), Record::RunEnded(ended)]
    };
    let (quail, stork, heron) = (replay("quail"), replay("stork"), replay("heron"));
    let unknown = replay("quail").into_iter().map(|record| match record {
        Record::RunBegan(began) => {
            Record::RunBegan(RunBegan { of: Some("none".to_owned()), ..began })
        }
        record => record,
    });
    erase(&project, "stork", None).unwrap();
    erase(&project, "heron", Some("1")).unwrap();
    let last = project.last();
    for replay in [stork, heron, unknown.collect()] {
        let refused = store.append_run(replay).await.unwrap_err();
        assert!(matches!(*refused, StoreError::SourceErased(_)), "{refused}");
    }
    assert_eq!((project.last(), sweep(&project, "stork-mark")), (last, 0));
    // The allowed twin, which is erased with its run.
    store.append_run(quail).await.unwrap();
    assert!(project.reader().run("replay of quail").unwrap().is_some());
    erase(&project, "quail", None).unwrap();
    assert_eq!((sweep(&project, "quail-mark"), project.fault()), (0, None));
}

/// Only the values of one call are erased, with those of the calls of its program.
#[tokio::test]
async fn a_call_is_erased_alone() {
    let project = Project::new();
    // Kept open: a store that is dropped is closed a moment later, and what is counted moves from one file to another.
    let store = project.open().unwrap();
    write_canaries(&store, "one", "mark").await;
    assert!(sweep(&project, "mark 1.1") > 0);
    // The calls 1 and 1.1, of three records each, and the question about the first.
    assert_eq!(erase(&project, "one", Some("1")).unwrap().records, 7);
    assert_eq!(project.fault(), None);
    assert_eq!(sweep(&project, "mark 1.1"), 0);
    assert!(sweep(&project, "mark 2") > 0);
    let run = project.reader().run("one").unwrap().unwrap();
    let erased: Vec<(&str, bool)> = run
        .calls
        .iter()
        .filter_map(|call| match call {
            reader::Call::Made(made) => Some((made.began.call.as_str(), made.began.args.erased)),
            reader::Call::Refused(_) | reader::Call::Mocked(_) => None,
        })
        .collect();
    assert_eq!(erased, [("1", true), ("1.1", true), ("2", false), ("11", false)]);
    assert_eq!(erase(&project, "one", None).unwrap().records, 9);
    assert_eq!((sweep(&project, CANARY), project.fault()), (0, None));
    let exported = RunStore::export(&project.workspace(), "one", true, true).unwrap().unwrap();
    let checked = exported.check().unwrap();
    let calls: Vec<_> = checked.erasures.iter().map(|erasure| erasure.call.as_deref()).collect();
    assert_eq!(calls, [Some("1"), None]);
    assert!(!serde_json::to_string(&exported).unwrap().contains(CANARY));
    // Without the record of the erasure, nothing explains the hashes.
    let mut edited = exported.clone();
    edited.records.pop();
    let reason = edited.check().unwrap_err();
    assert!(reason.contains("was erased, and no record states that"), "{reason}");
}

/// A large value that another record has as well stays, and is deleted with that.
#[tokio::test]
async fn a_shared_value_stays_until_nothing_needs_it() {
    let project = Project::new();
    let store = project.open().unwrap();
    write_run(&store, "one", 1).await;
    write_run(&store, "two", 1).await;
    let erased = erase(&project, "one", None).unwrap();
    assert_eq!((erased.files, erased.shared), (0, 1));
    assert_eq!(project.fault(), None);
    let erased = erase(&project, "two", None).unwrap();
    assert_eq!((erased.files, erased.shared), (1, 0));
    assert_eq!(project.fault(), None);
    // A value that is erased after it was written, and before its record is, is noticed.
    let large = store.content(&json!("y".repeat(20_000))).unwrap();
    let file =
        project.root().join(".pml/contents").join(crate::files::records::name_of_hash(large.hash));
    let ended = |output| {
        let (at, run) = (now(), "three".to_owned());
        Record::RunEnded(RunEnded {
            at,
            run,
            status: Status::Success,
            output,
            error: None,
            console: None,
        })
    };
    std::fs::remove_file(file).unwrap();
    let error = store.append(ended(Some(large))).await.unwrap_err();
    assert!(matches!(*error, StoreError::ValueGone), "{error}");
    let again = store.content(&json!("y".repeat(20_000))).unwrap();
    store.append(ended(Some(again))).await.unwrap();
    assert_eq!(project.fault(), None);
}

/// RP-01: a record whose text is replaced without an erasure, or otherwise than the erasure states, is named.
#[tokio::test]
async fn only_what_was_erased_is_missing() {
    let project = Project::new();
    let store = project.open().unwrap();
    write_run(&store, "one", 2).await;
    write_run(&store, "two", 2).await;
    drop(store);
    let text = |seq: i64| -> String {
        let select = "SELECT body FROM records WHERE seq = ?1";
        project.raw().query_row(select, [seq], |row| row.get(0)).unwrap()
    };
    let before: Vec<String> = (1..=13).map(text).collect();
    erase(&project, "one", None).unwrap();
    let after: Vec<String> = (1..=14).map(text).collect();
    let changed = (0..13).filter(|place| before[*place] != after[*place]).count();
    assert_eq!((changed, project.fault()), (6, None));
    project.settled();
    let original = std::fs::read(project.file()).unwrap();
    let set = |seq: i64, body: &str| {
        format!("UPDATE records SET body = '{}' WHERE seq = {seq}", body.replace('\'', "''"))
    };
    let mut record: Record = serde_json::from_str(&before[9]).unwrap();
    assert!(values::erase(&mut record));
    let erased_by_hand = record.to_row().body;
    let mut attacks = vec![
        (set(10, &erased_by_hand), 10, "was erased, and no record states that"),
        (set(3, &after[4]), 3, "was erased, and is not what was left of it"),
        (
            "DELETE FROM records WHERE seq = 14".to_owned(),
            2,
            "was erased, and no record states that",
        ),
        (
            "UPDATE records SET hash = zeroblob(32) WHERE seq = 3".to_owned(),
            3,
            "is not what was left",
        ),
        ("UPDATE records SET run_id = 'two' WHERE seq = 3".to_owned(), 3, "still has values"),
        (set(14, &after[13].replace("\"call\"", "\"cull\"")), 2, ""),
    ];
    for place in [1, 2, 3, 4, 5, 6] {
        let seq = i64::try_from(place).unwrap() + 1;
        // The value is there again, or something else is.
        attacks.push((set(seq, &before[place]), seq, "was erased, and its values are there again"));
        let other = after[place].replace("\"at\":\"2", "\"at\":\"1");
        attacks.push((set(seq, &other), seq, "was erased, and is not what was left of it"));
    }
    let attacks = attacks.into_iter().filter(|(sql, ..)| !sql.contains(&after[13]));
    for (sql, seq, expected) in attacks {
        project.tamper(&sql);
        let (found, reason) = project.fault().unwrap_or_else(|| panic!("not found: {sql}"));
        assert_eq!(found, Some(seq), "{sql}: {reason}");
        assert!(reason.contains(expected), "{sql}: {reason}");
        project.settled();
        std::fs::write(project.file(), &original).unwrap();
        assert_eq!(project.fault(), None);
    }
    // A change before the erasure is found, although the hash of the erased record is not computed.
    project.tamper("UPDATE records SET hash = zeroblob(32) WHERE seq = 1");
    assert_eq!(project.fault().unwrap().0, Some(1));
}

/// An erasure does not hide that a record was changed before.
#[tokio::test]
async fn a_changed_record_is_not_erased() {
    for (sql, refused) in [
        ("SELECT 1", false),
        ("UPDATE records SET body = replace(body, '\"at\":\"2', '\"at\":\"1') WHERE seq = 4", true),
        ("UPDATE records SET hash = zeroblob(32) WHERE seq = 3", true),
        ("DELETE FROM records WHERE seq = 3", true),
        ("UPDATE records SET body = '{}' WHERE seq = 6", true),
    ] {
        let project = Project::new();
        write_run(&project.open().unwrap(), "one", 2).await;
        project.tamper(sql);
        let (fault, last) = (project.fault(), project.last());
        let erased = erase(&project, "one", None);
        assert_eq!(erased.is_err(), refused, "{sql}: {erased:?}");
        if refused {
            assert!(matches!(erased, Err(StoreError::Changed(_))), "{sql}: {erased:?}");
            assert_eq!((project.fault(), project.last()), (fault, last), "{sql}");
        }
    }
}

/// Others write while values are erased. The chain stays in order, and only what was erased is gone.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn others_write_while_values_are_erased() {
    let project = Arc::new(Project::new());
    let store = project.open().unwrap();
    write_canaries(&store, "run-0", "mark-0-").await;
    let writing = Arc::clone(&project);
    let writer = tokio::spawn(async move {
        for run in 1..12 {
            let store = writing.open().unwrap();
            write_canaries(&store, &format!("run-{run}"), &format!("mark-{run}-")).await;
        }
    });
    let mut erased = 0;
    while erased < 11 {
        let project = Arc::clone(&project);
        let run = format!("run-{erased}");
        // The next run must have ended before its values can be erased.
        let is_there = |run: &Run| run.ended.is_some();
        let next = project.reader().run(&format!("run-{}", erased + 1)).unwrap();
        if !next.is_some_and(|run| is_there(&run)) {
            tokio::task::yield_now().await;
            continue;
        }
        let erasing = Arc::clone(&project);
        tokio::task::spawn_blocking(move || erase(&erasing, &run, None)).await.unwrap().unwrap();
        assert_eq!(project.fault(), None);
        erased += 1;
    }
    writer.await.unwrap();
    assert_eq!((project.fault(), project.verify().erasures.len()), (None, 11));
    for run in 0..11 {
        assert_eq!(sweep(&project, &format!("mark-{run}-")), 0, "{run}");
    }
    assert!(sweep(&project, "mark-11-") > 20);
}

/// RP-03: one place of the program changes a record, and none deletes one. `database.rs` copies a store of version 1.
#[test]
fn one_place_changes_records() {
    fn search(folder: &Path, found: &mut Vec<String>) {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                search(&path, found);
            } else if !path.to_string_lossy().contains("run_store/tests") {
                let text = std::fs::read_to_string(&path).unwrap_or_default().to_lowercase();
                for word in [
                    "update records",
                    "delete from records",
                    "replace into records",
                    "drop table records",
                ] {
                    let count = text.matches(word).count();
                    let name = path.file_name().unwrap().to_string_lossy();
                    found.extend((0..count).map(|_| format!("{name}: {word}")));
                }
            }
        }
    }
    let mut found = Vec::new();
    search(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"), &mut found);
    found.sort();
    assert_eq!(found, ["database.rs: drop table records", "erasure.rs: update records"]);
}
