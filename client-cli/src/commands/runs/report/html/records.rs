//! The records of the run within the page, from which a browser computes their hashes.

use std::collections::HashMap;
use std::fmt::Write as _;

use protocol::Integrity;
use serde_json::{Value, json};

use crate::diagram::display::is_hidden;
use crate::run_store::reader::Link;
use crate::run_store::record::Record;

/// Where the values of a run are recorded.
#[derive(Default)]
pub(super) struct Places {
    /// The start of the run.
    pub(super) began: Option<i64>,
    /// Its end.
    pub(super) ended: Option<i64>,
    calls: HashMap<(&'static str, String), i64>,
    /// The answers, in their order.
    pub(super) approvals: Vec<i64>,
}

impl Places {
    /// Finds the places of all values.
    pub(super) fn of(links: &[Link]) -> Self {
        let mut places = Self::default();
        for link in links {
            let seq = link.seq;
            // A record that cannot be read has no values on the page either.
            match serde_json::from_str(&link.body) {
                Ok(Record::RunBegan(_)) => places.began = Some(seq),
                Ok(Record::RunEnded(_)) => places.ended = Some(seq),
                Ok(Record::CallBegan(call)) => places.add("began", call.call, seq),
                Ok(Record::CallEnded(call)) => places.add("ended", call.call, seq),
                Ok(Record::CallRefused(call)) => places.add("refused", call.call, seq),
                Ok(Record::CallMocked(call)) => places.add("mocked", call.call, seq),
                Ok(Record::Approval(_)) => places.approvals.push(seq),
                _ => {}
            }
        }
        places
    }

    fn add(&mut self, kind: &'static str, call: String, seq: i64) {
        self.calls.insert((kind, call), seq);
    }

    /// Returns the number of the record about a call: its start (`began`), its end (`ended`), its refusal
    /// (`refused`), or its answer from another run (`mocked`).
    pub(super) fn call(&self, kind: &'static str, call: &str) -> Option<i64> {
        self.calls.get(&(kind, call.to_owned())).copied()
    }
}

/// Returns the JSON text of the records with their hashes, in at most `limit` bytes. If not all of them fit, the largest
/// are left out.
///
/// A record is there as JSON, and a browser makes its canonical text again. What can be told from the others is left out:
/// the run, and the hash of the record before it if that is there, too.
pub(super) fn embedded(links: &[Link], run: &str, shown: Integrity, limit: usize) -> String {
    let texts: Vec<String> = links.iter().map(|link| in_script(&record(link, run))).collect();
    let mut by_size: Vec<usize> = (0..links.len()).collect();
    by_size.sort_by_key(|index| texts[*index].len());
    let head = in_script(&json!({ "run": run, "total": links.len(), "shown": shown }).to_string());
    let head = head.trim_end_matches('}');
    let mut left = limit.saturating_sub(head.len() + 20);
    let mut is_kept = vec![false; links.len()];
    // As if each needed the hash before it. Most do not, so there may be room for more in the next round.
    let mut followed = 0;
    loop {
        let had = left;
        for index in by_size.iter().filter(|index| !is_kept[**index]).copied().collect::<Vec<_>>() {
            // The separator counts, too.
            let Some(rest) = left.checked_sub(texts[index].len() + BEFORE + 2) else { break };
            left = rest;
            is_kept[index] = true;
        }
        let following = (1..links.len()).filter(|index| {
            is_kept[*index] && is_kept[index - 1] && links[*index].seq == links[index - 1].seq + 1
        });
        let following = following.count();
        if left == had {
            break;
        }
        left += (following - followed) * BEFORE;
        followed = following;
    }
    let mut out = format!("{head},\"records\":[");
    let mut last = None;
    for ((link, text), _) in links.iter().zip(&texts).zip(&is_kept).filter(|(_, kept)| **kept) {
        out += if last.is_some() { ",\n" } else { "\n" };
        out += text.strip_suffix('}').unwrap_or(text);
        if last != Some(link.seq - 1) {
            let _ = write!(out, ",\"before\":\"{}\"", link.before);
        }
        out.push('}');
        last = Some(link.seq);
    }
    out + "\n]}"
}

/// The size of the hash of the record before, as a member.
const BEFORE: usize = 64;

/// Returns a record as JSON, without the hash before it. A text that is not JSON stays a text.
fn record(link: &Link, run: &str) -> String {
    let mut body = serde_json::from_str(&link.body).unwrap_or_else(|_| json!(link.body));
    if let Some(members) = body.as_object_mut()
        && members.get("run").and_then(Value::as_str) == Some(run)
    {
        members.shift_remove("run");
    }
    json!({ "body": body, "seq": link.seq, "hash": link.hash }).to_string()
}

/// Prepares JSON for a `script` element: no text in it can end the element or begin a comment, and whoever reads the
/// source of the page sees every character.
fn in_script(json: &str) -> String {
    let mut out = String::with_capacity(json.len());
    for c in json.chars() {
        // In JSON, these characters are only in texts, where an escape means the same.
        if matches!(c, '<' | '>' | '&') || is_hidden(c) {
            for unit in c.encode_utf16(&mut [0; 2]) {
                let _ = write!(out, "\\u{unit:04x}");
            }
        } else {
            out.push(c);
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn link(seq: i64, body: &str) -> Link {
        let hash = Integrity::of(body.as_bytes());
        Link { seq, before: hash, body: body.to_owned(), hash }
    }

    #[test]
    fn records_cannot_end_their_element() {
        let hostile = "{\"a\":\"</script><!--<script>\\\\u003c&\u{202e}\u{2028}\u{e0041}\"}";
        let text = embedded(&[link(1, hostile)], "r", Integrity::of(b""), 10_000);
        let acts = |c: char| "<>&".contains(c) || c != '\n' && is_hidden(c);
        assert!(!text.contains(acts), "{text}");
        let value: Value = serde_json::from_str(&text).unwrap();
        let body = serde_json::from_str::<Value>(hostile).unwrap();
        assert_eq!(value["records"][0]["body"], body);
        assert_eq!(value["total"], 1);
    }

    #[test]
    fn the_largest_records_are_left_out() {
        let large = format!("\"{}\"", "x".repeat(5_000));
        let links = [link(3, "1"), link(4, &large), link(5, "22")];
        // Without the run, which all have, and with the hash before only where it is not there already.
        let began =
            [link(3, r#"{"run":"r","a":1}"#), link(4, r#"{"run":"s"}"#), link(6, "no JSON")];
        let text = embedded(&began, "r", Integrity::of(b""), 2_000);
        let value: Value = serde_json::from_str(&text).unwrap();
        let has_before: Vec<bool> =
            (0..3).map(|index| value["records"][index].get("before").is_some()).collect();
        assert_eq!(has_before, [true, false, true], "{text}");
        assert_eq!(value["records"][0]["body"], json!({ "a": 1 }));
        assert_eq!(value["records"][1]["body"], json!({ "run": "s" }));
        assert_eq!(value["records"][2]["body"], "no JSON");
        let text = embedded(&links, "r", Integrity::of(b""), 2_000);
        assert!(text.len() <= 2_000);
        let value: Value = serde_json::from_str(&text).unwrap();
        let seqs: Vec<_> = value["records"].as_array().unwrap().iter().map(|r| &r["seq"]).collect();
        assert_eq!(seqs, [3, 5]);
        assert_eq!(value["total"], 3);
        let none = embedded(&links, "r", Integrity::of(b""), 10);
        assert_eq!(serde_json::from_str::<Value>(&none).unwrap()["records"], json!([]));
    }
}
