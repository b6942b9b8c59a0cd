//! The keys in use by this process. They are removed from everything that it writes for people, including messages of
//! libraries: a library's error may quote a key that an upstream returned.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::{Arc, LazyLock, PoisonError, RwLock};
use std::time::{Duration, Instant};

use serde_json::Value;
use sha2::{Digest as _, Sha256};
use zeroize::Zeroizing;

use super::{REDACTED, SHORTEST, forms};

/// How long a key is searched for after its last use: a library's task may outlive the call.
const LINGER: Duration = Duration::from_secs(60);
/// The maximum number of keys that are searched for after their last use.
const MAX_LINGERING: usize = 4_096;
/// Only this prefix of a long key is stored and searched for, which bounds the memory per key. The rest of the line is
/// removed with it.
const PREFIX: usize = 48;
/// The members of a JSON log line that the program itself writes. A key never changes them.
const OWN_MEMBERS: [&str; 3] = ["timestamp", "level", "target"];

/// Returns the set of this process.
pub fn keys_in_use() -> &'static Arc<KeysInUse> {
    static KEYS: LazyLock<Arc<KeysInUse>> = LazyLock::new(Arc::default);
    &KEYS
}

/// The set of keys in use. Cleaning a text is free while the set is empty; otherwise it costs a look-up per byte.
#[derive(Default)]
pub struct KeysInUse(RwLock<Index>);

#[derive(Default)]
struct Index {
    keys: HashMap<[u8; 32], Key>,
    /// The forms of all keys, by their first bytes.
    starts: HashMap<[u8; SHORTEST], Vec<Arc<Form>>>,
}

struct Key {
    uses: usize,
    released: Option<Instant>,
    forms: Vec<Arc<Form>>,
}

struct Form {
    text: Zeroizing<String>,
    /// Whether it is only a prefix of the key.
    is_part: bool,
}

/// A guard for a key, which is searched for while the guard exists and for a minute after.
pub struct UsedKey {
    of: Arc<KeysInUse>,
    id: [u8; 32],
}

impl Drop for UsedKey {
    fn drop(&mut self) {
        let mut index = self.of.0.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(key) = index.keys.get_mut(&self.id) {
            key.uses = key.uses.saturating_sub(1);
            if key.uses == 0 {
                key.released = Some(Instant::now());
            }
        }
    }
}

impl KeysInUse {
    /// Starts to search for a key, unless it has fewer than four bytes, which would match unrelated text.
    pub fn hold(self: &Arc<Self>, key: &str) -> UsedKey {
        // By the hash of the whole key: only a prefix of a long one is stored, and two keys can
        // share it.
        let id = Sha256::digest(key.as_bytes()).into();
        let mut index = self.0.write().unwrap_or_else(PoisonError::into_inner);
        match index.keys.get_mut(&id) {
            Some(known) => {
                known.uses += 1;
                known.released = None;
            }
            None => index.add(id, key),
        }
        UsedKey { of: Arc::clone(self), id }
    }

    /// Searches for a key until the process ends.
    pub fn keep(self: &Arc<Self>, key: &str) {
        std::mem::forget(self.hold(key));
    }

    /// Removes the keys from a text, in every form.
    pub fn text<'a>(&self, text: &'a str) -> Cow<'a, str> {
        // A panic in another thread must not stop the log.
        let index = self.0.read().unwrap_or_else(PoisonError::into_inner);
        if index.starts.is_empty() {
            return Cow::Borrowed(text);
        }
        index.clean(text)
    }

    /// Removes the keys from a log line. A JSON line stays valid JSON, whatever characters a key has.
    pub fn line<'a>(&self, line: &'a str) -> Cow<'a, str> {
        let clean = self.text(line);
        if let Cow::Borrowed(_) = clean {
            return clean;
        }
        // Cleaned again, value by value: a key may contain quotes or braces, and replacing those in
        // the text would break the line or change the members that the program itself writes.
        let Ok(Value::Object(mut members)) = serde_json::from_str(line) else { return clean };
        let index = self.0.read().unwrap_or_else(PoisonError::into_inner);
        for (name, value) in &mut members {
            if !OWN_MEMBERS.contains(&name.as_str()) {
                index.clean_value(value);
            }
        }
        Cow::Owned(Value::Object(members).to_string() + "\n")
    }
}

impl Index {
    fn add(&mut self, id: [u8; 32], key: &str) {
        // The set grows only here, so no timer is needed to keep it small.
        self.expire();
        let is_part = key.len() > PREFIX;
        let mut end = key.len().min(PREFIX);
        while !key.is_char_boundary(end) {
            end -= 1;
        }
        let forms: Vec<Arc<Form>> = forms(&key[..end])
            .into_iter()
            // Redundant: the key itself is also one of the forms.
            .filter(|form| !form.starts_with("Bearer "))
            .map(|text| Arc::new(Form { text: Zeroizing::new(text), is_part }))
            .collect();
        for form in &forms {
            if let Some(start) = form.text.as_bytes().first_chunk() {
                let forms = self.starts.entry(*start).or_default();
                forms.push(Arc::clone(form));
                // Longest first, so that a longer form is removed as a whole.
                forms.sort_by_key(|form| std::cmp::Reverse(form.text.len()));
            }
        }
        self.keys.insert(id, Key { uses: 1, released: None, forms });
    }

    /// Removes keys whose last use is older than [`LINGER`], and the oldest ones if there are too many.
    fn expire(&mut self) {
        let is_expired = |key: &Key| key.released.is_some_and(|at| at.elapsed() > LINGER);
        let mut expired: Vec<[u8; 32]> =
            self.keys.iter().filter(|(_, key)| is_expired(key)).map(|(id, _)| *id).collect();
        let released = self.keys.iter().filter_map(|(id, key)| Some((key.released?, *id)));
        let mut released: Vec<(Instant, [u8; 32])> = released.collect();
        if released.len() > MAX_LINGERING {
            released.sort_unstable();
            // Half of them at once, so that not every new key pays for a sort.
            expired.extend(released.iter().take(MAX_LINGERING / 2).map(|(_, id)| *id));
        }
        for id in expired {
            // A key can be in the list twice: as an expired one and among the oldest.
            let Some(key) = self.keys.remove(&id) else { continue };
            for form in &key.forms {
                let Some(start) = form.text.as_bytes().first_chunk::<SHORTEST>() else { continue };
                if let Some(forms) = self.starts.get_mut(start) {
                    // By identity: another key may have an equal form, which must remain.
                    forms.retain(|other| !Arc::ptr_eq(other, form));
                    if forms.is_empty() {
                        self.starts.remove(start);
                    }
                }
            }
        }
    }

    fn clean<'a>(&self, text: &'a str) -> Cow<'a, str> {
        let (mut out, mut kept, mut at) = (String::new(), 0, 0);
        while let Some(start) = text.as_bytes()[at..].first_chunk::<SHORTEST>() {
            let rest = &text.as_bytes()[at..];
            let found = self
                .starts
                .get(start)
                .and_then(|forms| forms.iter().find(|form| rest.starts_with(form.text.as_bytes())));
            let Some(form) = found else {
                // Byte by byte is safe: every form is valid UTF-8, so it can only match between
                // whole characters, and the slices of the text below never split one.
                at += 1;
                continue;
            };
            out += &text[kept..at];
            out += REDACTED;
            at += match form.is_part {
                // The end of the key is unknown, so the rest of the line goes as well.
                true => rest.iter().position(|byte| *byte == b'\n').unwrap_or(rest.len()),
                false => form.text.len(),
            };
            kept = at;
        }
        if kept == 0 && out.is_empty() {
            return Cow::Borrowed(text);
        }
        out += &text[kept..];
        Cow::Owned(out)
    }

    fn clean_value(&self, value: &mut Value) {
        match value {
            Value::String(text) => {
                if let Cow::Owned(clean) = self.clean(text) {
                    *text = clean;
                }
            }
            Value::Number(number) => {
                if let Cow::Owned(clean) = self.clean(&number.to_string()) {
                    *value = Value::String(clean);
                }
            }
            Value::Array(items) => items.iter_mut().for_each(|item| self.clean_value(item)),
            Value::Object(members) => {
                members.values_mut().for_each(|member| self.clean_value(member));
            }
            Value::Null | Value::Bool(_) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use data_encoding::BASE64;

    use super::*;

    const KEY: &str = "tvly-Ca\"n/a+r y\\7f3a91==é";

    /// NX-09: a key is removed from log lines in every form, while it is in use.
    #[test]
    fn removes_keys_in_use_from_lines() {
        let keys = Arc::<KeysInUse>::default();
        let lines = [
            KEY.to_owned(),
            format!("WARN x: Unexpected content type: Some(\"{KEY}\")"),
            serde_json::json!({ "message": KEY }).to_string(),
            format!("{KEY:?}"),
            format!("é{}é", BASE64.encode(format!("user:{KEY}").as_bytes())),
        ];
        for line in &lines {
            assert!(matches!(keys.line(line), Cow::Borrowed(_)), "{line}");
        }
        let (first, second) = (keys.hold(KEY), keys.hold(KEY));
        drop(first);
        for line in &lines {
            let clean = keys.line(line);
            assert!(clean.contains(REDACTED) && !clean.contains("7f3a91"), "{clean}");
        }
        drop(second);
        assert!(keys.line(KEY).contains(REDACTED), "a task may still write");
        for key in keys.0.write().unwrap().keys.values_mut() {
            key.released = Instant::now().checked_sub(2 * LINGER);
        }
        let _other = keys.hold("another-key");
        assert_eq!(keys.line(KEY), KEY);
        assert_eq!(keys.0.read().unwrap().keys.len(), 1);
    }

    /// A tenant can choose any key, but cannot thereby change the structure of a JSON log line.
    #[test]
    fn a_json_line_stays_valid() {
        let keys = Arc::<KeysInUse>::default();
        let line =
            "{\"level\":\"WARN\",\"message\":\"a WARN level\",\"n\":12345678,\"l\":[\"WARN\"]}\n";
        let _held = ["\",\"message\":\"", "WARN", "level", "12345678"].map(|key| keys.hold(key));
        let clean = keys.line(line);
        assert_eq!(
            clean,
            "{\"level\":\"WARN\",\"message\":\"a [redacted] [redacted]\",\"n\":\"[redacted]\",\"l\":[\"[redacted]\"]}\n"
        );
    }

    /// A long key is found by its prefix, and the rest of the line is removed with it.
    #[test]
    fn finds_a_long_key_by_its_prefix() {
        let keys = Arc::<KeysInUse>::default();
        let long: String = (0..2_000).map(|n| char::from(b'a' + (n % 23) as u8)).collect();
        let _held = keys.hold(&long);
        assert_eq!(keys.text(&format!("x {long} y\nz")), "x [redacted]\nz");
        assert_eq!(keys.text(&long[100..130]), &long[100..130]);
        assert!(keys.text(&BASE64.encode(long.as_bytes())).starts_with(REDACTED));
    }
}
