//! Renders entries as server.json, the official registry's description of an MCP server.

use protocol::server_json::is_exact;
use protocol::{EntryType, Fqdn, Install, RegistryEntry, escape_text};
use serde_json::{Value, json};

/// The maximum number of characters of a description in server.json.
const DESCRIPTION_LIMIT: usize = 100;
/// The placeholder for the user's workspace in the arguments of an entry.
const WORKSPACE: &str = "${workspace}";
/// Stands for the path of the server's own folder.
const HOME: &str = "${home}";

/// Returns the name of a server of this registry in the official API.
pub(crate) fn name_of(fqdn: &Fqdn) -> String {
    format!("{}/{}", fqdn.scope(), fqdn.namespace())
}

/// Renders an entry as server.json; `None` if a client could neither start nor reach it.
///
/// `gateway` is the address under which clients reach the gateway, if it is known.
pub(crate) fn of_entry(fqdn: &Fqdn, entry: &RegistryEntry, gateway: Option<&str>) -> Option<Value> {
    let mut server = match &entry.server_json {
        Some(published) => {
            let mut server = published.clone();
            // Clients show the title as it is, so it must not hide or reorder text.
            if let Some(title) = server["title"].as_str().map(escape_text) {
                server["title"] = json!(title);
            }
            server
        }
        None => json!({ "name": "", "title": fqdn.namespace() }),
    };
    // The publisher may have written it for a different name or version.
    server["name"] = json!(name_of(fqdn));
    server["description"] = json!(description(&entry.description, fqdn.namespace()));
    server["version"] = json!(version_of(entry)?);
    match entry.kind {
        EntryType::Stdio if entry.server_json.is_some() => {}
        EntryType::Stdio => server["packages"] = json!([package(entry.install.as_ref()?)?]),
        EntryType::Http => server["remotes"] = remotes(fqdn, &entry.env_required, gateway),
        EntryType::Deno | EntryType::Native => return None,
    }
    Some(server)
}

/// Returns an entry's version in the official API; `None` for entries that are not listed there.
pub(crate) fn version_of(entry: &RegistryEntry) -> Option<String> {
    // The version of an `http` server is that of its entry: it has no package.
    let packaged = match entry.kind {
        EntryType::Http => None,
        EntryType::Stdio if entry.server_json.is_some() => None,
        EntryType::Stdio => {
            package(entry.install.as_ref()?)?["version"].as_str().map(str::to_owned)
        }
        EntryType::Deno | EntryType::Native => return None,
    };
    // A server without a version gets one from its content: different content is a different version.
    let by_content = || {
        let hash = &entry.integrity.into_bytes()[..4];
        let hash: String = hash.iter().map(|byte| format!("{byte:02x}")).collect();
        format!("0.0.0-{hash}")
    };
    Some(entry.server_version.clone().or(packaged).unwrap_or_else(by_content))
}

/// Returns how a client reaches an HTTP server: through the gateway, with an API key of the gateway.
///
/// The server's own address and variables are not disclosed: a direct connection would bypass secrets, rules and the
/// audit log.
pub(crate) fn remotes(fqdn: &Fqdn, env_required: &[String], gateway: Option<&str>) -> Value {
    let Some(gateway) = gateway else { return json!([]) };
    let key = json!({ "description": "An API key of this gateway", "isRequired": true, "isSecret": true });
    let mut headers = vec![json!({
        "name": "Authorization",
        "description": "An API key of this gateway with the right `execute`",
        "value": "Bearer {pml_api_key}",
        "isRequired": true,
        "isSecret": true,
        "variables": { "pml_api_key": key },
    })];
    headers.extend(env_required.iter().map(|name| {
        json!({
            "name": format!("X-PML-Key-{}", name.replace('_', "-")),
            "description": format!("`{name}`, unless it is stored on the gateway"),
            "isRequired": false,
            "isSecret": true,
        })
    }));
    json!([{
        "type": "streamable-http",
        "url": format!("{gateway}/mcp/proxy/{fqdn}"),
        "headers": headers,
    }])
}

/// Returns the first line of a description, escaped and cut to the limit. If empty, returns the name, because clients
/// refuse an empty description.
fn description(text: &str, name: &str) -> String {
    let line = text.lines().map(str::trim).find(|line| !line.is_empty()).unwrap_or(name);
    let escaped = escape_text(line);
    if escaped.chars().count() <= DESCRIPTION_LIMIT {
        return escaped;
    }
    escaped.chars().take(DESCRIPTION_LIMIT - 1).chain(['…']).collect()
}

fn package(install: &Install) -> Option<Value> {
    let args: Vec<&str> = install.args.iter().map(String::as_str).collect();
    let (kind, base, hint, spec, mut runtime, rest) = match install.command.as_str() {
        "npx" => {
            let rest = args.as_slice();
            let (runtime, rest) = match rest {
                ["-y" | "--yes", rest @ ..] => {
                    (vec![json!({ "type": "named", "name": "-y" })], rest)
                }
                rest => (Vec::new(), rest),
            };
            let (spec, rest) = rest.split_first()?;
            ("npm", "https://registry.npmjs.org", "npx", *spec, runtime, rest)
        }
        "uvx" => {
            let (spec, rest) = args.split_first()?;
            ("pypi", "https://pypi.org", "uvx", *spec, Vec::new(), rest)
        }
        "docker" | "podman" => {
            let mut rest = args.strip_prefix(&["run"])?;
            let mut runtime = Vec::new();
            loop {
                match rest {
                    ["-i" | "--interactive" | "--rm", tail @ ..] => {
                        runtime.push(json!({ "type": "named", "name": rest[0] }));
                        rest = tail;
                    }
                    // The variables are listed separately, below.
                    ["-e" | "--env", variable, tail @ ..] if !variable.contains('=') => rest = tail,
                    _ => break,
                }
            }
            let (spec, rest) = rest.split_first()?;
            ("oci", "https://docker.io", "docker", *spec, runtime, rest)
        }
        _ => return None,
    };
    // An unsupported option in front of the package would be taken for its name.
    if spec.is_empty() || spec.starts_with('-') || spec.contains(char::is_whitespace) {
        return None;
    }
    // A Python package may be written `name==version` or `name@version`.
    let separator = match kind {
        "oci" => ":",
        _ if spec.contains("==") => "==",
        _ => "@",
    };
    // Neither the `@` of an npm scope nor the `:` of a registry's port separates a version: the
    // first has no text before it, the second is followed by a slash.
    let (identifier, version) = match spec.rsplit_once(separator) {
        Some((identifier, version)) if !identifier.is_empty() && !version.contains('/') => {
            (identifier, Some(version).filter(|version| is_exact(version)))
        }
        _ => (spec, None),
    };
    let arguments: Vec<Value> = rest.iter().map(|text| argument(text)).collect();
    let fixed = install.env.iter().map(|(name, value)| {
        let mut variable = filled(value);
        variable["name"] = json!(name);
        variable
    });
    let variables: Vec<Value> =
        install.env_required.iter().map(|name| variable(name)).chain(fixed).collect();
    // Docker passes a variable of the environment only if `-e` names it.
    if kind == "oci" {
        for name in install.env_required.iter().chain(install.env.keys()) {
            runtime.push(json!({ "type": "named", "name": "-e", "value": name }));
        }
    }
    let mut package = json!({
        "registryType": kind,
        "registryBaseUrl": base,
        "identifier": identifier,
        "runtimeHint": hint,
        "transport": { "type": "stdio" },
    });
    let fields = package.as_object_mut()?;
    if let Some(version) = version {
        fields.insert("version".to_owned(), json!(version));
    }
    for (name, list) in [
        ("runtimeArguments", runtime),
        ("packageArguments", arguments),
        ("environmentVariables", variables),
    ] {
        if !list.is_empty() {
            fields.insert(name.to_owned(), Value::Array(list));
        }
    }
    Some(package)
}

fn argument(text: &str) -> Value {
    let mut argument = filled(text);
    argument["type"] = json!("positional");
    argument
}

/// Renders a value with the places that only the machine knows as variables.
fn filled(text: &str) -> Value {
    let (mut value, mut variables) = (text.to_owned(), serde_json::Map::new());
    for (place, name, description) in [
        (WORKSPACE, "workspace", "The working directory"),
        (HOME, "home", "A folder in which the server keeps its files"),
    ] {
        if value.contains(place) {
            value = value.replace(place, &format!("{{{name}}}"));
            let variable =
                json!({ "description": description, "format": "filepath", "isRequired": true });
            variables.insert(name.to_owned(), variable);
        }
    }
    match variables.is_empty() {
        true => json!({ "value": value }),
        false => json!({ "value": value, "variables": variables }),
    }
}

fn variable(name: &str) -> Value {
    json!({ "name": name, "isRequired": true, "isSecret": true })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stdio(command: &str, args: &[&str], env: &[&str]) -> Option<Value> {
        package(&Install {
            command: command.to_owned(),
            args: args.iter().map(|text| (*text).to_owned()).collect(),
            env_required: env.iter().map(|text| (*text).to_owned()).collect(),
            ..Install::default()
        })
    }

    /// The format has no place for hosts; fixed variables have one.
    #[test]
    fn renders_fixed_variables() {
        let env = [("NOTES", "${home}/notes"), ("MODE", "quiet")];
        let install = Install {
            command: "npx".to_owned(),
            args: vec!["-y".to_owned(), "a@1.2.3".to_owned()],
            env: env.map(|(name, value)| (name.to_owned(), value.to_owned())).into(),
            network: vec!["api.example.com".to_owned()],
            ..Install::default()
        };
        let variables = &package(&install).unwrap()["environmentVariables"];
        assert_eq!(variables[0], json!({ "value": "quiet", "name": "MODE" }));
        assert_eq!(variables[1]["value"], "{home}/notes");
        assert_eq!(variables[1]["variables"]["home"]["format"], "filepath");
    }

    #[test]
    fn renders_npm_pypi_and_oci_packages() {
        let npm = stdio("npx", &["-y", "@a/b@1.2.3", "${workspace}", "--x"], &["A_KEY"]).unwrap();
        assert_eq!(
            (&npm["registryType"], &npm["identifier"], &npm["version"]),
            (&json!("npm"), &json!("@a/b"), &json!("1.2.3"))
        );
        assert_eq!(npm["packageArguments"][0]["value"], "{workspace}");
        assert_eq!(npm["packageArguments"][0]["variables"]["workspace"]["format"], "filepath");
        assert_eq!(npm["packageArguments"][1], json!({ "type": "positional", "value": "--x" }));
        assert_eq!(npm["environmentVariables"][0]["name"], "A_KEY");
        for spec in ["mcp-time==2.0.1", "mcp-time@2.0.1"] {
            let pypi = stdio("uvx", &[spec], &[]).unwrap();
            assert_eq!(
                (&pypi["registryType"], &pypi["identifier"], &pypi["version"]),
                (&json!("pypi"), &json!("mcp-time"), &json!("2.0.1"))
            );
        }
        let oci =
            stdio("docker", &["run", "-i", "--rm", "-e", "K", "ghcr.io/a/b:3.1"], &["K"]).unwrap();
        assert_eq!((&oci["identifier"], &oci["version"]), (&json!("ghcr.io/a/b"), &json!("3.1")));
        // Tags and ranges are not versions: what they denote changes.
        for spec in ["@a/b", "@a/b@latest", "@a/b@^1.0", "b@1.x"] {
            assert!(stdio("npx", &[spec], &[]).unwrap().get("version").is_none(), "{spec}");
        }
    }

    #[test]
    fn omits_commands_that_server_json_cannot_describe() {
        for (command, args) in [
            ("/usr/bin/server", &[][..]),
            ("npx", &["-y"]),
            ("npx", &["--package", "x"]),
            ("uvx", &["--from", "git+https://x"]),
            ("docker", &["run", "-v", "/:/host", "image"]),
            ("docker", &["build", "."]),
            ("sh", &["-c", "npx x"]),
        ] {
            assert_eq!(stdio(command, args, &[]), None, "{command} {args:?}");
        }
    }

    /// RG-13: a description in server.json is short, escaped and never empty.
    #[test]
    fn descriptions_are_short_and_escaped() {
        assert_eq!(description("  \n Reads.\nMore.", "x"), "Reads.");
        assert_eq!(description("\n", "x"), "x");
        assert_eq!(description("a\u{202e}b", "x"), "a\\u{202e}b");
        assert_eq!(description(&"y".repeat(100_000), "x").chars().count(), DESCRIPTION_LIMIT);
    }
}
