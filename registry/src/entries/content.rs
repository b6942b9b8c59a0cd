//! The stored form of an entry: its content and its hash.

use protocol::{Fqdn, Integrity, IntegrityError, RegistryEntry, Routing, Visibility};
use serde_json::{Map, Value};

use crate::RegistryError;

/// Returns what is stored for an entry: its content in the publisher's order,
/// and its hash.
pub(crate) fn to_stored(entry: &RegistryEntry) -> Result<(String, Integrity), RegistryError> {
    let invalid = |error: serde_json::Error| {
        RegistryError::Invalid(format!("the entry `{}` is not JSON: {error}", entry.fqdn))
    };
    let content = Value::Object(entry.content()).to_string();
    // Hashed from the stored text, as every read does.
    let integrity = Integrity::of_json(&serde_json::from_str(&content).map_err(invalid)?);
    Ok((content, integrity))
}

/// Reads an entry from its stored content, if the content still matches its hash.
///
/// `name` is the unpinned name under which the content was found. A content that was moved to another row contains a
/// different name and is refused as well.
pub(crate) fn from_stored(
    name: Fqdn,
    content: &str,
    integrity: &str,
    routing: Routing,
) -> Result<(RegistryEntry, Fqdn), RegistryError> {
    let verified = verify(&name, content, integrity);
    let Some((mut fields, integrity)) = verified else {
        return Err(RegistryError::IntegrityMismatch(name));
    };
    let fqdn = match name.action() {
        // A full name can have a hash only after an action, so that of a server is never pinned.
        Some(_) => name.clone().pinned(integrity.short()),
        None => name.clone(),
    };
    fields.insert("fqdn".to_owned(), Value::String(fqdn.to_string()));
    fields.insert("routing".to_owned(), Value::String(routing.as_str().to_owned()));
    fields.insert("integrity".to_owned(), Value::String(integrity.to_string()));
    match serde_json::from_value(Value::Object(fields)) {
        Ok(entry) => Ok((entry, fqdn)),
        // The hash matches, but this program cannot read the content, so it must not be served in
        // part.
        Err(_) => Err(RegistryError::IntegrityMismatch(name)),
    }
}

fn verify(name: &Fqdn, content: &str, integrity: &str) -> Option<(Map<String, Value>, Integrity)> {
    let integrity: Result<Integrity, IntegrityError> = integrity.parse();
    let integrity = integrity.ok()?;
    let content: Value = serde_json::from_str(content).ok()?;
    if Integrity::of_json(&content) != integrity {
        return None;
    }
    match content {
        Value::Object(fields)
            if fields.get("fqdn").and_then(Value::as_str) == Some(&name.to_string()) =>
        {
            Some((fields, integrity))
        }
        _ => None,
    }
}

/// Returns whether a text or a name anywhere in a value contains a NUL character, which Postgres cannot store.
pub fn contains_nul(value: &Value) -> bool {
    // The recursion is bounded: `serde_json` refuses to parse more than 128 levels.
    match value {
        Value::String(text) => text.contains('\0'),
        Value::Array(items) => items.iter().any(contains_nul),
        Value::Object(fields) => {
            fields.iter().any(|(name, value)| name.contains('\0') || contains_nul(value))
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => false,
    }
}

/// Reads a routing word of the database.
pub(crate) fn routing(word: &str) -> Routing {
    // A check constraint allows only these two words; the client is the safe default.
    if word == "server" { Routing::Server } else { Routing::Client }
}

/// Reads a visibility word of the database.
pub(crate) fn visibility(word: &str) -> Visibility {
    // A check constraint allows only the four words; the narrowest is the safe default.
    word.parse().unwrap_or(Visibility::Private)
}

#[cfg(test)]
mod tests {
    use protocol::EntryType;
    use serde_json::json;

    use super::*;

    fn entry() -> RegistryEntry {
        RegistryEntry {
            fqdn: "acme.web.db.query".to_owned(),
            kind: EntryType::Http,
            description: "Asks \"the\" database \u{202e}".to_owned(),
            install: None,
            proxy_to: Some("https://db.example/mcp".to_owned()),
            env_required: vec!["DB_KEY".to_owned()],
            tools: vec![
                serde_json::from_value(json!({
                    "name": "query",
                    "description": "",
                    "inputSchema": {"type": "object", "properties": {"z": {"maximum": 1e2}, "a": {}}}
                }))
                .unwrap(),
            ],
            warnings: vec![],
            server_version: None,
            server_json: None,
            capability: None,
            deprecated: None,
            routing: Routing::Server,
            integrity: Integrity::of(b""),
        }
    }

    #[test]
    fn a_stored_entry_comes_back_pinned_and_in_its_order() {
        let (content, integrity) = to_stored(&entry()).unwrap();
        assert!(content.find("\"z\"").unwrap() < content.find("\"a\"").unwrap());
        let name: Fqdn = entry().fqdn.parse().unwrap();
        let (read, fqdn) =
            from_stored(name.clone(), &content, &integrity.to_string(), Routing::Client).unwrap();
        assert_eq!(fqdn, name.pinned(integrity.short()));
        assert_eq!(read.fqdn, fqdn.to_string());
        assert_eq!((read.routing, read.integrity), (Routing::Client, integrity));
        // A client computes the same hash from the body that it receives.
        assert_eq!(read.content_integrity(), integrity);
    }

    /// RG-01: a changed content, hash or place is not served.
    #[test]
    fn changed_contents_are_refused() {
        let (content, integrity) = to_stored(&entry()).unwrap();
        let integrity = integrity.to_string();
        let name: Fqdn = entry().fqdn.parse().unwrap();
        let elsewhere: Fqdn = "acme.web.db.other".parse().unwrap();
        let read = |name: &Fqdn, content: &str, integrity: &str| {
            from_stored(name.clone(), content, integrity, Routing::Server)
        };
        read(&name, &content, &integrity).unwrap();
        for (name, content, integrity) in [
            (&name, content.replace("db.example", "db.evil"), integrity.clone()),
            (&name, content.clone(), Integrity::of(content.as_bytes()).to_string()),
            (&name, content.clone(), String::new()),
            (&name, "{".to_owned(), integrity.clone()),
            (&elsewhere, content.clone(), integrity.clone()),
        ] {
            let error = read(name, &content, &integrity).unwrap_err();
            assert!(matches!(error, RegistryError::IntegrityMismatch(_)), "{error}");
        }
    }
}
