//! What a reader of an exported run refuses, although somebody with a trusted key signed it.

use super::*;
use crate::run_store::export::{ExportedContent, ExportedRecord};

/// Returns two interleaved runs, of which the first has a large value.
async fn interleaved() -> Project {
    let project = Project::new();
    let (one, two) = (project.open().unwrap(), project.open().unwrap());
    // Without turns, one of them may be written before the other begins.
    let turns = Barrier::new(2);
    tokio::join!(
        write_run_in_turns(&one, "one", 6, &turns),
        write_run_in_turns(&two, "two", 6, &turns)
    );
    project
}

fn export(project: &Project, run: &str, with_contents: bool) -> RunExport {
    RunStore::export(&project.workspace(), run, true, with_contents).unwrap().unwrap()
}

#[tokio::test]
async fn a_run_is_exported_with_its_places_in_the_chain() {
    let project = interleaved().await;
    let (one, two) = (export(&project, "one", true), export(&project, "two", true));
    for exported in [&one, &two] {
        let checked = exported.check().unwrap();
        assert_eq!((exported.records.len(), checked.calls), (14, 6));
        assert_eq!(checked.ended.unwrap().1, Status::Success);
        assert_eq!((exported.contents.len(), exported.absent.len()), (1, 0));
        assert_eq!(exported.end.seq, 29);
        // It survives its text.
        let text = serde_json::to_string(exported).unwrap();
        assert_eq!(serde_json::from_str::<RunExport>(&text).unwrap(), *exported);
    }
    assert!(one.records.windows(2).any(|pair| pair[0].seq + 1 < pair[1].seq), "not interleaved");
    let without = export(&project, "one", false);
    without.check().unwrap();
    assert_eq!((without.contents.len(), without.absent.len()), (0, 1));
    assert_eq!(without.digest(), one.digest());
    assert_ne!(two.digest(), one.digest());
}

/// Every edit of the records and of the contents of an export is found, and named.
#[tokio::test]
async fn an_edited_export_is_refused() {
    let project = interleaved().await;
    let (one, two) = (export(&project, "one", true), export(&project, "two", true));
    let mut edits = 0;
    let mut refuse = |what: String, edit: &dyn Fn(&mut RunExport)| {
        let mut edited = one.clone();
        edit(&mut edited);
        assert_ne!(edited, one, "{what}");
        let reason = edited.check().err().unwrap_or_else(|| panic!("accepted: {what}"));
        assert!(!reason.is_empty());
        edits += 1;
        reason
    };
    let rehash = |record: &mut ExportedRecord| {
        record.hash = chain::chained(record.before, record.seq, &record.body);
    };
    let other = Integrity::of(b"other");
    let last = one.records.len() - 1;
    for place in 0..=last {
        let seq = one.records[place].seq;
        let named = |reason: String| {
            assert!(reason.contains(&format!("record {seq} ")), "{seq}: {reason}");
        };
        for (byte, by) in [(10, b'~'), (one.records[place].body.len() / 2, b'~')] {
            named(refuse(format!("{seq}: byte {byte}"), &|edited| {
                let mut body = edited.records[place].body.clone().into_bytes();
                body[byte] = by;
                edited.records[place].body = String::from_utf8(body).unwrap();
            }));
        }
        named(refuse(format!("{seq}: a space"), &|edited| edited.records[place].body.push(' ')));
        named(refuse(format!("{seq}: a space, hashed again"), &|edited| {
            let record = &mut edited.records[place];
            record.body.push(' ');
            rehash(record);
        }));
        named(refuse(format!("{seq}: another time of a record of another run"), &|edited| {
            let record = &mut edited.records[place];
            record.body = record.body.replace("\"run\":\"one\"", "\"run\":\"two\"");
            rehash(record);
        }));
        named(refuse(format!("{seq}: no record"), &|edited| {
            let record = &mut edited.records[place];
            record.body = "{}".to_owned();
            rehash(record);
        }));
        named(refuse(format!("{seq}: hash"), &|edited| edited.records[place].hash = other));
        named(refuse(format!("{seq}: hash before"), &|edited| {
            edited.records[place].before = other
        }));
        for number in [seq + 1, seq - 1, 0, 1, -seq, i64::MAX] {
            named_or_next(refuse(format!("{seq}: number {number}"), &|edited| {
                edited.records[place].seq = number;
            }));
        }
        refuse(format!("{seq}: twice"), &|edited| {
            edited.records.insert(place, edited.records[place].clone());
        });
        refuse(format!("{seq}: one of another run"), &|edited| {
            edited.records.insert(place, two.records[place].clone());
        });
        if place > 0 {
            refuse(format!("{seq}: swapped"), &|edited| edited.records.swap(place, place - 1));
        } else {
            refuse(format!("{seq}: without its beginning"), &|edited| {
                drop(edited.records.remove(0))
            });
        }
    }
    for (what, edit) in edits_of_contents(other) {
        refuse(what.to_owned(), &*edit);
    }
    assert!(edits >= 200, "{edits}");
}

fn named_or_next(reason: String) {
    assert!(reason.starts_with("record "), "{reason}");
}

type Edit = Box<dyn Fn(&mut RunExport)>;

fn edits_of_contents(other: Integrity) -> Vec<(&'static str, Edit)> {
    let edit = |edit: fn(&mut RunExport)| -> Edit { Box::new(edit) };
    vec![
        ("another run", edit(|edited| edited.run = "two".to_owned())),
        ("no records", edit(|edited| edited.records.clear())),
        ("an earlier end", edit(|edited| edited.end.seq = 2)),
        (
            "another end",
            Box::new(move |edited| {
                edited.end.seq = edited.records.last().unwrap().seq;
                edited.end.hash = other;
            }),
        ),
        ("no content", edit(|edited| edited.contents.clear())),
        ("a content twice", edit(|edited| edited.contents.push(edited.contents[0].clone()))),
        ("a content there and absent", edit(|edited| edited.absent.push(edited.contents[0].hash))),
        ("a changed content", edit(|edited| edited.contents[0].base64 = "eA==".to_owned())),
        (
            "a content in another form",
            edit(|edited| {
                let text = &mut edited.contents[0].base64;
                *text = text.trim_end_matches('=').to_owned() + "\n";
            }),
        ),
        (
            "another content",
            Box::new(move |edited| {
                edited.contents[0] = ExportedContent { hash: other, base64: "b3RoZXI=".to_owned() };
            }),
        ),
        (
            "a further content",
            Box::new(move |edited| {
                edited
                    .contents
                    .push(ExportedContent { hash: other, base64: "b3RoZXI=".to_owned() });
            }),
        ),
        ("a further absent content", Box::new(move |edited| edited.absent.push(other))),
    ]
}
