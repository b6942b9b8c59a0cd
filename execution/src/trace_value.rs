//! What a trace tells of a value: a keyed hash, the size and the shape.

use std::io::{self, BufWriter, Write};

use hmac::{Hmac, KeyInit as _, Mac as _};
use protocol::{Integrity, TraceValue};
use serde_json::Value;
use sha2::Sha256;

/// How deep a shape looks into arrays.
const DEPTH: usize = 3;

/// Summarizes a value. `key` is secret and belongs to one run: without it, the hash of a short value could be guessed.
///
/// The hash is that of [`protocol::canonical_json`], computed without a copy of the value, which can be large.
pub fn trace_value(key: &[u8; 32], value: &Value) -> TraceValue {
    let mac = Hmac::<Sha256>::new_from_slice(key).expect("HMAC takes keys of any length");
    let mut text = BufWriter::with_capacity(1024, Hashed { mac, bytes: 0 });
    write_canonical(value, &mut text).expect("a hash takes any text");
    let Hashed { mac, bytes } = text.into_inner().map_err(|_| ()).expect("a hash takes any text");
    let hash = Integrity::from_bytes(mac.finalize().into_bytes().into());
    TraceValue { hash: format!("hmac-{hash}"), bytes, shape: shape(value, DEPTH), value: None }
}

/// Hashes and counts what is written.
struct Hashed {
    mac: Hmac<Sha256>,
    bytes: u64,
}

impl Write for Hashed {
    fn write(&mut self, text: &[u8]) -> io::Result<usize> {
        self.mac.update(text);
        self.bytes += u64::try_from(text.len()).unwrap_or(u64::MAX);
        Ok(text.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Writes what [`protocol::canonical_json`] returns: no white space, the keys of every object sorted.
fn write_canonical(value: &Value, text: &mut impl Write) -> io::Result<()> {
    match value {
        Value::Object(members) => {
            let mut sorted: Vec<_> = members.iter().collect();
            sorted.sort_unstable_by_key(|(name, _)| *name);
            let mut before = b"{";
            for (name, member) in sorted {
                text.write_all(before)?;
                before = b",";
                serde_json::to_writer(&mut *text, name)?;
                text.write_all(b":")?;
                write_canonical(member, text)?;
            }
            text.write_all(if members.is_empty() { b"{}" } else { b"}" })
        }
        Value::Array(items) => {
            let mut before = b"[";
            for item in items {
                text.write_all(before)?;
                before = b",";
                write_canonical(item, text)?;
            }
            text.write_all(if items.is_empty() { b"[]" } else { b"]" })
        }
        scalar => Ok(serde_json::to_writer(text, scalar)?),
    }
}

/// Returns the types and lengths of a value. It has no names of members: in the answer of a tool they can be data, such
/// as e-mail addresses.
fn shape(value: &Value, depth: usize) -> String {
    match value {
        Value::String(text) => format!("string({})", text.chars().count()),
        Value::Object(members) => format!("object({})", members.len()),
        Value::Array(items) => match items.split_first() {
            Some((first, rest)) if depth > 0 => {
                format!("array({}) of {}", items.len(), common(first, rest, depth - 1))
            }
            _ => format!("array({})", items.len()),
        },
        other => kind(other).to_owned(),
    }
}

/// Returns what all items of an array are: their shape without lengths of strings, their type, or `mixed`.
fn common(first: &Value, rest: &[Value], depth: usize) -> String {
    if rest.iter().any(|item| kind(item) != kind(first)) {
        return "mixed".to_owned();
    }
    if first.is_string() {
        return kind(first).to_owned();
    }
    let of_first = shape(first, depth);
    match rest.iter().all(|item| shape(item, depth) == of_first) {
        true => of_first,
        false => kind(first).to_owned(),
    }
}

fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_shape_has_types_and_lengths_and_no_names() {
        for (value, expected) in [
            (json!(null), "null"),
            (json!(true), "boolean"),
            (json!(1.5), "number"),
            (json!("äb"), "string(2)"),
            (json!({ "ada@example.com": 1, "b": 2 }), "object(2)"),
            (json!([]), "array(0)"),
            (json!(["a", "bc"]), "array(2) of string"),
            (json!([{ "a": 1 }, { "b": 1 }]), "array(2) of object(1)"),
            (json!([{ "a": 1 }, {}]), "array(2) of object"),
            (json!([1, "a"]), "array(2) of mixed"),
            (json!([[1], [2]]), "array(2) of array(1) of number"),
            (json!([[[[1]]]]), "array(1) of array(1) of array(1) of array(1)"),
        ] {
            assert_eq!(shape(&value, DEPTH), expected, "{value}");
        }
    }

    #[test]
    fn what_is_hashed_is_the_canonical_text() {
        for value in [
            json!(null),
            json!({}),
            json!([]),
            json!({ "b": [1, 2.5, -3e300, "\u{0}\"\u{e9}"], "a": { "d": {}, "c": [[], [{}]] }, "": true }),
        ] {
            let mut text = Vec::new();
            write_canonical(&value, &mut text).unwrap();
            assert_eq!(
                String::from_utf8(text.clone()).unwrap(),
                protocol::canonical_json(value.clone())
            );
            assert_eq!(trace_value(&[1; 32], &value).bytes, text.len() as u64);
        }
    }

    #[test]
    fn equal_values_of_one_run_have_one_hash_and_other_runs_have_others() {
        let hash = |key: u8, value: Value| trace_value(&[key; 32], &value).hash;
        assert_eq!(hash(1, json!({ "a": 1, "b": 2 })), hash(1, json!({ "b": 2, "a": 1 })));
        assert_ne!(hash(1, json!("a")), hash(1, json!("b")));
        assert_ne!(hash(1, json!("a")), hash(2, json!("a")));
        // RFC 4231, test case 2, with its key padded by zeroes to 32 bytes, which HMAC does itself.
        let mut key = [0; 32];
        key[..4].copy_from_slice(b"Jefe");
        let mut mac = Hmac::<Sha256>::new_from_slice(&key).unwrap();
        mac.update(b"what do ya want for nothing?");
        let hex: String = mac.finalize().into_bytes().iter().map(|b| format!("{b:02x}")).collect();
        assert_eq!(hex, "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
        assert!(hash(1, json!("a")).starts_with("hmac-sha256-"));
    }
}
