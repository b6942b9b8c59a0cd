//! The answer of a registry, compared with what it was asked.

use protocol::{EntryType, Fqdn, RegistryEntry, json};
use serde_json::Value;

use super::{Found, ServerName};
use crate::capabilities::RegisteredServer;
use crate::origin::Origin;

/// The maximum number of values and names in an answer: an entry lists the tools of one server with their schemas.
const VALUES_LIMIT: usize = 100_000;

/// What was asked for.
pub(super) struct Wanted<'a> {
    pub(super) origin: &'a Origin,
    pub(super) name: &'a ServerName,
}

/// What the registry says.
pub(super) enum Answer {
    /// It has nothing of that name.
    Nothing,
    /// It has something.
    Found(Found),
}

impl Wanted<'_> {
    /// Reads the answer to the name of the server.
    ///
    /// # Errors
    /// Returns why it is not one.
    pub(super) fn server(&self, status: u16, body: &[u8]) -> Result<Answer, String> {
        let Some(body) = present(status, body)? else { return Ok(Answer::Nothing) };
        let body = match body {
            Ok(body) => body,
            Err(reason) => return Ok(unusable(reason)),
        };
        let entry = self.entry(body)?;
        let fqdn = self.fqdn(&entry)?;
        if fqdn.action().is_some() {
            return Err("the entry of a tool for the name of a server".to_owned());
        }
        if self.name.version.is_some() && entry.server_version != self.name.version {
            return Err("another version than the one that was asked for".to_owned());
        }
        // The approval of the user is bound to this hash, so it must be the hash of what would start.
        if entry.integrity != entry.content_integrity() {
            return Err("an entry that does not match its hash".to_owned());
        }
        match entry.kind {
            EntryType::Stdio if entry.install.is_some() => {
                let registry = Some(self.origin.clone());
                Ok(Answer::Found(Found::Server(Box::new(RegisteredServer { entry, registry }))))
            }
            EntryType::Stdio => Ok(unusable("its entry has no start command".to_owned())),
            kind => Ok(self.other_type(kind)),
        }
    }

    /// Reads the answer to the name of a tool, whose server the registry does not have.
    ///
    /// # Errors
    /// Returns why it is not one.
    pub(super) fn tool(&self, status: u16, body: &[u8]) -> Result<Answer, String> {
        let Some(body) = present(status, body)? else { return Ok(Answer::Nothing) };
        let body = match body {
            Ok(body) => body,
            Err(reason) => return Ok(unusable(reason)),
        };
        let entry = self.entry(body)?;
        self.fqdn(&entry)?;
        match entry.kind {
            EntryType::Stdio => Err("a tool of a server that it does not have".to_owned()),
            kind => Ok(self.other_type(kind)),
        }
    }

    fn entry(&self, body: &[u8]) -> Result<RegistryEntry, String> {
        if json::values(body) > VALUES_LIMIT {
            return Err(format!("more than {VALUES_LIMIT} values"));
        }
        serde_json::from_slice(body).map_err(|error| error.to_string())
    }

    /// Returns the name in the entry, which must be the one that was asked for.
    fn fqdn(&self, entry: &RegistryEntry) -> Result<Fqdn, String> {
        let other = || format!("the entry `{}` for another name", entry.fqdn);
        let fqdn: Fqdn = entry.fqdn.parse().map_err(|_| other())?;
        let is_scope = self.name.scope.as_ref().is_none_or(|scope| scope == fqdn.scope());
        if is_scope && fqdn.namespace() == self.name.namespace { Ok(fqdn) } else { Err(other()) }
    }

    fn other_type(&self, kind: EntryType) -> Answer {
        unusable(format!(
            "it is of the type `{}`, and only servers of the type `stdio` are taken from a registry other than the gateway",
            kind.as_str()
        ))
    }
}

fn unusable(reason: String) -> Answer {
    Answer::Found(Found::Unusable(reason))
}

/// Returns the body of an entry; `None` if there is none, and an error if there is one that is not served.
fn present(status: u16, body: &[u8]) -> Result<Option<Result<&[u8], String>>, String> {
    match status {
        200 => Ok(Some(Ok(body))),
        // A deleted name is not free: another registry's server would take its place.
        410 => Ok(Some(Err("it was deleted there".to_owned()))),
        404 => {
            let answer: Option<Value> = serde_json::from_slice(body).ok();
            let error = answer.as_ref().and_then(|answer| answer["error"].as_str());
            Ok(match error {
                Some("ambiguous") => Some(Err("several projects have it there".to_owned())),
                Some("hash_mismatch") => Some(Err("it has another hash there".to_owned())),
                _ => None,
            })
        }
        other => Err(format!("HTTP status {other}")),
    }
}

#[cfg(test)]
mod tests {
    use protocol::Integrity;
    use serde_json::json;

    use super::*;

    fn entry(fields: Value) -> Vec<u8> {
        let mut entry = json!({
            "fqdn": "acme.core.db", "type": "stdio", "description": "", "routing": "server",
            "install": { "command": "npx", "args": ["db"] }, "integrity": Integrity::of(b""),
        });
        entry.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        let mut entry: RegistryEntry = serde_json::from_value(entry).unwrap();
        entry.integrity = entry.content_integrity();
        serde_json::to_vec(&entry).unwrap()
    }

    /// Returns a word for the answer, and its reason.
    fn read(id: &str, status: u16, body: &[u8]) -> (&'static str, String) {
        let (origin, name) =
            ("https://a.test".parse().unwrap(), ServerName::of(&id.parse().unwrap()));
        let wanted = Wanted { origin: &origin, name: &name };
        match wanted.server(status, body) {
            Ok(Answer::Nothing) | Ok(Answer::Found(Found::Nothing)) => ("nothing", String::new()),
            Ok(Answer::Found(Found::Server(server))) => {
                assert_eq!(server.registry, Some(origin));
                ("server", server.fqdn.clone())
            }
            Ok(Answer::Found(Found::Unusable(reason))) => ("unusable", reason),
            Err(reason) => ("invalid", reason),
        }
    }

    /// A registry can only answer with the server that it was asked for.
    #[test]
    fn an_answer_is_compared_with_the_question() {
        let good = entry(json!({}));
        let mut forged: Value = serde_json::from_slice(&good).unwrap();
        forged["description"] = json!("other");
        let forged = serde_json::to_vec(&forged).unwrap();
        let versioned = entry(json!({ "server_version": "1.0.0" }));
        let many = format!("[{}1]", "1,".repeat(VALUES_LIMIT));
        for (id, status, body, kind, words) in [
            ("db:query", 200, &good[..], "server", "acme.core.db"),
            ("acme.core.db:query", 200, &good, "server", ""),
            ("db:query@1.0.0", 200, &versioned, "server", ""),
            ("db:query@1.0.1", 200, &versioned, "invalid", "another version"),
            ("db:query@1.0.0", 200, &good, "invalid", "another version"),
            ("other:query", 200, &good, "invalid", "`acme.core.db` for another name"),
            ("acme.docs.db:query", 200, &good, "invalid", "for another name"),
            ("db:query", 200, &entry(json!({ "fqdn": "acme.core.db.query" })), "invalid", "tool"),
            ("db:query", 200, &entry(json!({ "fqdn": "\u{1b}[2J" })), "invalid", "another name"),
            ("db:query", 200, &forged, "invalid", "does not match its hash"),
            ("db:query", 200, b"<html>", "invalid", "expected value"),
            ("db:query", 200, many.as_bytes(), "invalid", "more than 100000 values"),
            ("db:query", 200, &entry(json!({ "type": "http" })), "unusable", "the type `http`"),
            ("db:query", 200, &entry(json!({ "install": null })), "unusable", "no start command"),
            ("db:query", 404, b"", "nothing", ""),
            ("db:query", 404, b"{\"error\":\"not_found\"}", "nothing", ""),
            ("db:query", 404, b"{\"error\":\"ambiguous\"}", "unusable", "several projects"),
            ("db:query", 410, b"", "unusable", "deleted"),
        ] {
            let (found, said) = read(id, status, body);
            assert!(found == kind && said.contains(words), "{id} {words}: {found} {said}");
        }
    }
}
