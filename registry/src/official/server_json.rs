//! Our entries as server.json, the official registry's form of an MCP server, and the other way round.

use protocol::{EntryType, Fqdn, Install, RegistryEntry, ResultMode, escape_text};
use serde_json::{Value, json};

use crate::CatalogServer;

/// The most characters of a description there.
const DESCRIPTION_LIMIT: usize = 100;
/// How an argument of ours names the user's workspace.
const WORKSPACE: &str = "${workspace}";

/// Says an entry as server.json; `None` for what a client can neither start nor reach by it.
pub(super) fn of_entry(fqdn: &Fqdn, entry: &RegistryEntry) -> Option<Value> {
    let name = format!("{}/{}", fqdn.scope(), fqdn.namespace());
    let (field, place, version) = match entry.kind {
        EntryType::Stdio => {
            let package = package(entry.install.as_ref()?)?;
            let version = package["version"].as_str().map(str::to_owned);
            ("packages", package, version)
        }
        EntryType::Http => ("remotes", remote(entry)?, None),
        EntryType::Deno | EntryType::Native => return None,
    };
    // What has no version of its own is named by its content: other content is another version.
    let version = version.unwrap_or_else(|| {
        let hash: String =
            entry.integrity.into_bytes()[..4].iter().map(|byte| format!("{byte:02x}")).collect();
        format!("0.0.0-{hash}")
    });
    Some(json!({
        "name": name,
        "title": fqdn.namespace(),
        "description": description(&entry.description, fqdn.namespace()),
        "version": version,
        field: [place],
    }))
}

/// Returns the first of a description, as the form allows it; never an empty one, which clients refuse.
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
                    // The variables are told apart, below.
                    ["-e" | "--env", variable, tail @ ..] if !variable.contains('=') => rest = tail,
                    _ => break,
                }
            }
            let (spec, rest) = rest.split_first()?;
            ("oci", "https://docker.io", "docker", *spec, runtime, rest)
        }
        _ => return None,
    };
    // Another option in the place of the package would be read as its name.
    if spec.is_empty() || spec.starts_with('-') || spec.contains(char::is_whitespace) {
        return None;
    }
    let separator = match kind {
        "oci" => ":",
        _ if spec.contains("==") => "==",
        _ => "@",
    };
    let (identifier, version) = match spec.rsplit_once(separator) {
        Some((identifier, version)) if !identifier.is_empty() && !version.contains('/') => {
            (identifier, Some(version).filter(|version| is_exact(version)))
        }
        _ => (spec, None),
    };
    let arguments: Vec<Value> = rest.iter().map(|text| argument(text)).collect();
    let variables: Vec<Value> = install.env_required.iter().map(|name| variable(name)).collect();
    if kind == "oci" {
        for name in &install.env_required {
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

/// Tells whether a version is one, not a range or a tag that moves.
fn is_exact(version: &str) -> bool {
    version.starts_with(|c: char| c.is_ascii_digit() || c == 'v')
        && version.chars().all(|c| c.is_ascii_alphanumeric() || ".-+_".contains(c))
        && version.chars().any(|c| c.is_ascii_digit())
        && !version.ends_with(".x")
}

fn argument(text: &str) -> Value {
    if !text.contains(WORKSPACE) {
        return json!({ "type": "positional", "value": text });
    }
    json!({
        "type": "positional",
        "value": text.replace(WORKSPACE, "{workspace}"),
        "variables": {
            "workspace": {
                "description": "The folder that it works in",
                "format": "filepath",
                "isRequired": true,
            },
        },
    })
}

fn variable(name: &str) -> Value {
    json!({ "name": name, "isRequired": true, "isSecret": true })
}

fn remote(entry: &RegistryEntry) -> Option<Value> {
    let mut remote = json!({ "type": "streamable-http", "url": entry.proxy_to.as_ref()? });
    if let Some(name) = entry.env_required.first() {
        // As the gateway itself sends it.
        remote["headers"] = json!([{
            "name": "Authorization",
            "value": format!("Bearer {{{name}}}"),
            "isRequired": true,
            "isSecret": true,
            "variables": { name: { "isRequired": true, "isSecret": true } },
        }]);
    }
    Some(remote)
}

/// Says a server.json as an entry of the catalog: its first package that can be started with what it says, else its
/// first remote. A version that moves, or an argument that nobody has, is refused: what is approved is pinned.
///
/// # Errors
/// Returns why it cannot be said so.
pub(crate) fn to_catalog(server: &Value, namespace: &str) -> Result<CatalogServer, String> {
    let list = |field: &str| server[field].as_array().cloned().unwrap_or_default();
    let mut why = Vec::new();
    let mut entry = CatalogServer {
        namespace: namespace.to_owned(),
        kind: EntryType::Stdio,
        description: server["description"].as_str().unwrap_or_default().to_owned(),
        install: None,
        proxy_to: None,
        env_required: Vec::new(),
        routing: None,
        warnings: Vec::new(),
        result: ResultMode::Text,
        tools: Vec::new(),
    };
    for package in list("packages") {
        match install_of(&package) {
            Ok(install) => {
                entry.install = Some(install);
                return Ok(entry);
            }
            Err(reason) => why.push(reason),
        }
    }
    for remote in list("remotes") {
        match proxy_of(&remote) {
            Ok((url, variables)) => {
                (entry.kind, entry.proxy_to, entry.env_required) =
                    (EntryType::Http, Some(url), variables);
                return Ok(entry);
            }
            Err(reason) => why.push(reason),
        }
    }
    if why.is_empty() {
        why.push("it names no package and no remote".to_owned());
    }
    Err(format!("it can be neither started nor reached: {}", escape_text(&why.join("; "))))
}

fn install_of(package: &Value) -> Result<Install, String> {
    let text = |field: &str| package[field].as_str().unwrap_or_default();
    let (kind, identifier, version) = (text("registryType"), text("identifier"), text("version"));
    let what = format!("package `{identifier}`");
    if package["transport"]["type"] != "stdio" {
        return Err(format!("{what} does not speak over stdio"));
    }
    let plain = |extra: &str| {
        !identifier.is_empty()
            && identifier.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '@')
            && !identifier.contains("..")
            && identifier.chars().all(|c| c.is_ascii_alphanumeric() || extra.contains(c))
    };
    let (command, base, name_is_plain) = match kind {
        "npm" => ("npx", "https://registry.npmjs.org", plain("@/._-")),
        "pypi" => ("uvx", "https://pypi.org", plain("._-")),
        "oci" => ("docker", "https://docker.io", plain("/._:-")),
        _ => return Err(format!("{what} is of a kind that is not known, `{kind}`")),
    };
    if !name_is_plain {
        return Err(format!("{what} has no name of its kind"));
    }
    let stated = package["registryBaseUrl"].as_str().map(|url| url.trim_end_matches('/'));
    if stated.is_some_and(|url| url != base) {
        return Err(format!("{what} comes from another place than `{base}`"));
    }
    // An image may have its tag in its name.
    let spec = match (kind, version) {
        ("oci", "") if identifier.rsplit('/').next().is_some_and(|last| last.contains(':')) => {
            let tag = identifier.rsplit(':').next().unwrap_or_default();
            if !is_exact(tag) {
                return Err(format!("{what} has no version that stays"));
            }
            identifier.to_owned()
        }
        (_, version) if !is_exact(version) => {
            return Err(format!("{what} has no version that stays"));
        }
        ("oci", version) => format!("{identifier}:{version}"),
        (_, version) => format!("{identifier}@{version}"),
    };
    let mut env_required = Vec::new();
    for variable in package["environmentVariables"].as_array().into_iter().flatten() {
        let name = variable["name"].as_str().unwrap_or_default();
        let named = !name.is_empty()
            && !name.starts_with(|c: char| c.is_ascii_digit())
            && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
        if !named {
            return Err(format!("{what} needs a variable without a name"));
        }
        if variable["isRequired"] == true {
            env_required.push(name.to_owned());
        }
    }
    let mut args = Vec::new();
    match kind {
        "npm" => args.push("-y".to_owned()),
        "oci" => {
            args.extend(["run", "-i", "--rm"].map(str::to_owned));
            args.extend(env_required.iter().flat_map(|name| ["-e".to_owned(), name.clone()]));
        }
        _ => {}
    }
    // Options of the runner could undo what it is run within, or run something else.
    let harmless = ["-y", "--yes", "-i", "--interactive", "--rm", "-e", "--env"];
    for argument in package["runtimeArguments"].as_array().into_iter().flatten() {
        let option = argument["name"].as_str().or(argument["value"].as_str()).unwrap_or_default();
        if !harmless.contains(&option)
            || argument["value"].as_str().is_some_and(|value| value.contains('='))
        {
            return Err(format!("{what} wants `{option}` of what runs it"));
        }
    }
    args.push(spec);
    for argument in package["packageArguments"].as_array().into_iter().flatten() {
        let value = argument["value"].as_str().or(argument["default"].as_str());
        let open =
            value.is_some_and(|value| value.contains('{')) && argument.get("variables").is_some();
        let value = match value {
            Some(value) if !open => Some(value),
            _ if argument["isRequired"] == true => {
                return Err(format!("{what} needs an argument that somebody must give"));
            }
            _ => None,
        };
        match (argument["type"].as_str(), argument["name"].as_str(), value) {
            (Some("positional"), _, value) => args.extend(value.map(str::to_owned)),
            (Some("named"), Some(name), Some(value)) => {
                args.extend([name.to_owned(), value.to_owned()])
            }
            // An option without a value of its own is a switch, unless the value was left open.
            (Some("named"), Some(name), None) if !open && argument.get("format").is_none() => {
                args.push(name.to_owned());
            }
            (Some("named"), Some(_), None) => {}
            _ => return Err(format!("{what} has an argument of no kind")),
        }
    }
    Ok(Install { command: command.to_owned(), args, env_required })
}

fn proxy_of(remote: &Value) -> Result<(String, Vec<String>), String> {
    let url = remote["url"].as_str().unwrap_or_default();
    let what = format!("remote `{url}`");
    if remote["type"] != "streamable-http" {
        return Err(format!("{what} does not speak Streamable HTTP"));
    }
    let host = url.strip_prefix("https://").and_then(|rest| rest.split(['/', '?', '#']).next());
    let good = host.is_some_and(|host| !host.is_empty() && !host.contains('@'))
        && !url.contains(|c: char| c.is_whitespace() || c.is_control() || c == '{');
    if !good {
        return Err(format!("{what} is no address of its own over TLS"));
    }
    let mut variables = Vec::new();
    for header in remote["headers"].as_array().into_iter().flatten() {
        let name = header["name"].as_str().unwrap_or_default();
        let value = header["value"].as_str().unwrap_or_default();
        let variable = value.strip_prefix("Bearer {").and_then(|rest| rest.strip_suffix('}'));
        match variable {
            Some(variable)
                if name.eq_ignore_ascii_case("authorization")
                    && variables.is_empty()
                    && variable.chars().all(|c| c.is_ascii_alphanumeric() || c == '_') =>
            {
                variables.push(variable.to_uppercase());
            }
            _ if header["isRequired"] == true => {
                return Err(format!(
                    "{what} needs the header `{name}`, which the gateway does not send"
                ));
            }
            _ => {}
        }
    }
    Ok((url.to_owned(), variables))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stdio(command: &str, args: &[&str], env: &[&str]) -> Option<Value> {
        package(&Install {
            command: command.to_owned(),
            args: args.iter().map(|text| (*text).to_owned()).collect(),
            env_required: env.iter().map(|text| (*text).to_owned()).collect(),
        })
    }

    #[test]
    fn packages_of_three_kinds_are_told() {
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
        // A tag that moves is no version.
        for spec in ["@a/b", "@a/b@latest", "@a/b@^1.0", "b@1.x"] {
            assert!(stdio("npx", &[spec], &[]).unwrap().get("version").is_none(), "{spec}");
        }
    }

    #[test]
    fn what_cannot_be_told_is_left_out() {
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

    /// RG-13: a description there is short, shows what it hides, and is never empty.
    #[test]
    fn descriptions_are_short_and_escaped() {
        assert_eq!(description("  \n Reads.\nMore.", "x"), "Reads.");
        assert_eq!(description("\n", "x"), "x");
        assert_eq!(description("a\u{202e}b", "x"), "a\\u{202e}b");
        assert_eq!(description(&"y".repeat(100_000), "x").chars().count(), DESCRIPTION_LIMIT);
    }

    fn said(server: Value) -> Result<(EntryType, Vec<String>, Option<String>), String> {
        let entry = to_catalog(&server, "x")?;
        let args = entry.install.map(|install| install.args).unwrap_or_default();
        Ok((entry.kind, args, entry.proxy_to))
    }

    #[test]
    fn what_is_pinned_can_be_approved() {
        let npm = json!({ "packages": [{
            "registryType": "npm", "identifier": "@a/b", "version": "1.2.3", "transport": { "type": "stdio" },
            "runtimeArguments": [{ "type": "named", "name": "-y" }],
            "packageArguments": [{ "type": "positional", "value": "serve" }, { "type": "named", "name": "--port", "value": "1" }],
            "environmentVariables": [{ "name": "A_KEY", "isRequired": true }, { "name": "B" }],
        }] });
        let (kind, args, _) = said(npm.clone()).unwrap();
        assert_eq!(
            (kind, args),
            (
                EntryType::Stdio,
                ["-y", "@a/b@1.2.3", "serve", "--port", "1"].map(str::to_owned).to_vec()
            )
        );
        assert_eq!(to_catalog(&npm, "x").unwrap().install.unwrap().env_required, ["A_KEY"]);
        let oci = json!({ "packages": [{
            "registryType": "oci", "identifier": "ghcr.io/a/b:1.0.0", "transport": { "type": "stdio" },
        }] });
        assert_eq!(said(oci).unwrap().1, ["run", "-i", "--rm", "ghcr.io/a/b:1.0.0"]);
        let remote = json!({ "remotes": [{
            "type": "streamable-http", "url": "https://x.example/mcp",
            "headers": [{ "name": "Authorization", "value": "Bearer {x_key}", "isRequired": true }],
        }] });
        assert_eq!(said(remote).unwrap().2.as_deref(), Some("https://x.example/mcp"));
    }

    #[test]
    fn what_moves_or_reaches_out_is_refused() {
        let good = json!({
            "registryType": "npm", "identifier": "a", "version": "1.2.3", "transport": { "type": "stdio" },
        });
        for (field, value) in [
            ("version", json!("latest")),
            ("version", json!("^1.2.3")),
            ("version", json!("1.2.3 && curl x")),
            ("version", json!(1)),
            ("identifier", json!("--package=evil")),
            ("identifier", json!("git+https://x/y")),
            ("identifier", json!("../x")),
            ("registryType", json!("mcpb")),
            ("registryBaseUrl", json!("https://npm.evil.example")),
            ("transport", json!({ "type": "sse", "url": "https://x" })),
            (
                "runtimeArguments",
                json!([{ "type": "named", "name": "--node-options", "value": "--require=x" }]),
            ),
            (
                "runtimeArguments",
                json!([{ "type": "named", "name": "-e", "value": "LD_PRELOAD=x" }]),
            ),
            (
                "packageArguments",
                json!([{ "type": "positional", "valueHint": "path", "isRequired": true }]),
            ),
            ("environmentVariables", json!([{ "name": "A=B" }])),
        ] {
            let mut package = good.clone();
            package[field] = value.clone();
            said(json!({ "packages": [package] })).expect_err(&format!("{field} {value}"));
        }
        said(json!({ "packages": [good] })).unwrap();
        for url in [
            "http://x.example/mcp",
            "https://u:p@x.example/",
            "https://{host}/mcp",
            "file:///etc/passwd",
            "",
        ] {
            said(json!({ "remotes": [{ "type": "streamable-http", "url": url }] })).expect_err(url);
        }
        said(json!({})).expect_err("nothing");
    }
}
