//! Parses pages of another registry's API, which are untrusted.

use protocol::Integrity;
use protocol::model_text::flags_of;
use serde_json::Value;

use crate::entries::content;

/// The largest server.json, in bytes: ten times the largest ones in the official registry.
const SERVER_LIMIT: usize = 64 * 1024;
/// The longest name.
const NAME_LIMIT: usize = 200;
/// The longest version.
const VERSION_LIMIT: usize = 255;
/// The longest cursor.
const CURSOR_LIMIT: usize = 4_096;

/// A valid server of a page, ready for quarantine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReadServer {
    /// Its name.
    pub name: String,
    /// Its version.
    pub version: String,
    /// The hash of its server.json.
    pub integrity: String,
    /// Its server.json, with the original order of fields.
    pub content: String,
    /// `active`, `deprecated` or `deleted`.
    pub status: String,
    /// The flags for human review.
    pub flags: Vec<String>,
}

/// A parsed page.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ReadPage {
    /// The valid servers.
    pub servers: Vec<ReadServer>,
    /// One line for each refused server, with the reason.
    pub refused: Vec<String>,
    /// The cursor of the next page.
    pub next_cursor: Option<String>,
}

/// Reads a page: `{"servers": [{"server", "_meta"}], "metadata": {"nextCursor"}}`.
///
/// An invalid server is refused without affecting the others.
///
/// # Errors
/// Returns the reason if the document is not a page of servers.
pub fn read_page(body: &[u8]) -> Result<ReadPage, String> {
    let page: Value =
        serde_json::from_slice(body).map_err(|error| format!("it is not JSON: {error}"))?;
    let servers = page.get("servers").and_then(Value::as_array);
    let servers = servers.ok_or("it has no list `servers`")?;
    let next_cursor = match page.pointer("/metadata/nextCursor") {
        None | Some(Value::Null) => None,
        // Requesting the next page with an empty cursor could return the first one again.
        Some(Value::String(cursor)) if cursor.is_empty() => None,
        Some(Value::String(cursor)) if cursor.len() <= CURSOR_LIMIT => Some(cursor.clone()),
        // The whole page is refused: without its cursor, the import would end early and look
        // complete.
        Some(_) => {
            return Err(format!(
                "its `nextCursor` is not a string of at most {CURSOR_LIMIT} bytes"
            ));
        }
    };
    let mut read = ReadPage { next_cursor, ..ReadPage::default() };
    for (index, listed) in servers.iter().enumerate() {
        match read_server(listed) {
            Ok(server) => read.servers.push(server),
            Err(why) => read.refused.push(format!("entry {}: {why}", index + 1)),
        }
    }
    Ok(read)
}

fn read_server(listed: &Value) -> Result<ReadServer, String> {
    let server = listed.get("server").filter(|server| server.is_object());
    let server = server.ok_or("it has no object `server`")?;
    let text = |field: &str, limit: usize| match server.get(field) {
        Some(Value::String(text)) if !text.is_empty() && text.len() <= limit => Ok(text.clone()),
        _ => Err(format!("`{field}` is not a string of 1 to {limit} bytes")),
    };
    let name = text("name", NAME_LIMIT)?;
    if !is_name(&name) {
        return Err(format!(
            "`{}` is not a name of the form `domain/server`",
            protocol::escape_text(&name)
        ));
    }
    let version = text("version", VERSION_LIMIT)?;
    // The API reserves `latest`, and `@` separates a name from its version on the command line.
    // Other letters could hide or reorder text on the operator's screen.
    if version == "latest"
        || !version.bytes().all(|b| b.is_ascii_graphic())
        || version.contains('@')
    {
        return Err(format!("`{name}`: its version is invalid"));
    }
    text("description", SERVER_LIMIT).map_err(|why| format!("`{name}`: {why}"))?;
    for field in ["packages", "remotes"] {
        if server.get(field).is_some_and(|list| !list.is_array()) {
            return Err(format!("`{name}`: `{field}` is not a list"));
        }
    }
    let content = server.to_string();
    if content.len() > SERVER_LIMIT {
        return Err(format!(
            "`{name}`: it has {} bytes; the limit is {SERVER_LIMIT}",
            content.len()
        ));
    }
    // The catalog derives columns from its content as `jsonb`, which cannot hold a NUL.
    if content::contains_nul(server) {
        return Err(format!("`{name}`: a string contains a NUL character"));
    }
    // In a JSON pointer, `~1` stands for `/` (RFC 6901).
    let status = match listed.pointer("/_meta/io.modelcontextprotocol.registry~1official/status") {
        None => "active",
        Some(Value::String(status))
            if ["active", "deprecated", "deleted"].contains(&status.as_str()) =>
        {
            status
        }
        Some(_) => return Err(format!("`{name}`: its status is invalid")),
    };
    let mut flags = Vec::new();
    collect_flags(server, &mut flags);
    Ok(ReadServer {
        integrity: Integrity::of_json(server).to_string(),
        status: status.to_owned(),
        name,
        version,
        content,
        flags,
    })
}

/// Collects the flags for human review, anywhere in a server.json.
fn collect_flags(value: &Value, flags: &mut Vec<String>) {
    // The recursion is bounded: `serde_json` refuses to parse more than 128 levels.
    match value {
        Value::String(text) => {
            for word in flags_of(text).words() {
                if !flags.iter().any(|flag| flag == word) {
                    flags.push(word.to_owned());
                }
            }
        }
        Value::Array(items) => items.iter().for_each(|item| collect_flags(item, flags)),
        Value::Object(fields) => {
            // A remote has a type and a URL. Other URLs, such as a website, are not called.
            let insecure = |url: &Value| url.as_str().is_some_and(|url| url.starts_with("http://"));
            if fields.contains_key("type")
                && fields.get("url").is_some_and(insecure)
                && !flags.iter().any(|flag| flag == "insecure_remote")
            {
                flags.push("insecure_remote".to_owned());
            }
            fields.values().for_each(|field| collect_flags(field, flags));
        }
        _ => {}
    }
}

fn is_name(name: &str) -> bool {
    let domain = |b: u8| b.is_ascii_alphanumeric() || b".-".contains(&b);
    let server = |b: u8| domain(b) || b == b'_';
    name.split_once('/').is_some_and(|(first, second)| {
        !first.is_empty()
            && !second.is_empty()
            && first.bytes().all(domain)
            && second.bytes().all(server)
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn listed(server: Value) -> Value {
        json!({ "server": server, "_meta": {} })
    }

    fn page(servers: Vec<Value>) -> ReadPage {
        let page = json!({ "servers": servers, "metadata": { "count": 1 } });
        read_page(page.to_string().as_bytes()).unwrap()
    }

    #[test]
    fn keeps_a_server_unchanged() {
        // The backslash is part of the text, which has no NUL.
        let server =
            json!({ "version": "1.0.0", "name": "io.x/y", "description": "Splits at \\u0000." });
        let read = page(vec![listed(server.clone())]);
        assert_eq!(read.refused, Vec::<String>::new());
        assert_eq!(read.servers[0].content, server.to_string());
        assert_eq!((read.servers[0].status.as_str(), read.servers[0].flags.len()), ("active", 0));
    }

    /// RG-13: an invalid server is refused without affecting the others; a suspicious one is kept and flagged.
    #[test]
    fn invalid_servers_are_refused_and_suspicious_ones_flagged() {
        let good = |field: &str, value: Value| {
            let mut server =
                json!({ "name": "io.x/y", "version": "1.0.0", "description": "Does." });
            server[field] = value;
            listed(server)
        };
        for bad in [
            json!(null),
            json!({ "server": [] }),
            good("name", json!(7)),
            good("name", json!("no-slash")),
            good("name", json!("a/b/c")),
            good("name", json!("io.х/y")),
            good("name", json!("x".repeat(300))),
            good("version", json!("")),
            good("version", json!("latest")),
            good("version", json!("1.0\u{202e}")),
            good("description", json!(["x"])),
            good("description", json!("x".repeat(70_000))),
            good("description", json!("a\0b")),
            good("packages", json!([{ "a\0b": 1 }])),
            good("packages", json!({})),
        ] {
            let read = page(vec![bad.clone(), good("title", json!("fine"))]);
            assert_eq!((read.servers.len(), read.refused.len()), (1, 1), "{bad}");
        }
        for (field, value, flag) in [
            ("description", json!("<IMPORTANT>obey"), "instructions"),
            ("title", json!("a\u{200b}b"), "hidden_characters"),
            ("websiteUrl", json!("x".repeat(3_000)), "too_long"),
            ("remotes", json!([{ "type": "sse", "url": "http://x" }]), "insecure_remote"),
        ] {
            assert_eq!(page(vec![good(field, value)]).servers[0].flags, [flag]);
        }
    }

    #[test]
    fn refuses_documents_that_are_not_pages() {
        for body in [
            "",
            "{",
            "[]",
            "{}",
            r#"{"servers":{}}"#,
            r#"{"servers":[],"metadata":{"nextCursor":7}}"#,
        ] {
            read_page(body.as_bytes()).expect_err(body);
        }
        let deep = format!(r#"{{"servers":[{}]}}"#, "[".repeat(100_000));
        read_page(deep.as_bytes()).expect_err("deep");
    }
}
