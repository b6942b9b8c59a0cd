//! Reads server.json, the official MCP registry's description of a server.
//!
//! Source: the registry's `server.schema.json`, 2025-07-09 to 2025-12-11. Only immutable versions are accepted: the
//! same document must always yield the same server.

mod packages;

use serde_json::{Map, Value};

pub use self::packages::is_exact;
use self::packages::{is_archive, is_immutable, is_npm_name};
use crate::fqdn::SEGMENT_LIMIT;
use crate::{Install, escape_text};

/// How to start or reach a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ServerPlace {
    /// It is started as a child process.
    Stdio(Install),
    /// It is reached by Streamable HTTP.
    Http {
        /// Its address.
        url: String,
        /// The variable whose value is sent as `Authorization: Bearer`, if the server needs one.
        env_required: Vec<String>,
    },
}

/// Returns how to start or reach the server of a server.json: by its first usable package, or else by its first usable
/// remote. A package is skipped if its version is not immutable, if it needs an argument that only a user can provide,
/// or if it passes options to its runtime.
///
/// # Errors
/// Returns the reasons why no package and no remote is usable, escaped for a terminal.
pub fn place_of(server: &Value) -> Result<ServerPlace, String> {
    let server = &in_camel_case(server);
    let list = |field: &str| server[field].as_array().into_iter().flatten();
    let packages = list("packages").map(|package| install_of(package).map(ServerPlace::Stdio));
    let remotes = list("remotes").map(|remote| {
        let (url, env_required) = proxy_of(remote)?;
        Ok(ServerPlace::Http { url, env_required })
    });
    let mut why = Vec::new();
    for place in packages.chain(remotes) {
        match place {
            Ok(place) => return Ok(place),
            Err(reason) => why.push(reason),
        }
    }
    if why.is_empty() {
        why.push("it has no package and no remote".to_owned());
    }
    Err(format!("it can be neither started nor reached: {}", escape_text(&why.join("; "))))
}

/// Returns the namespace that a name suggests: the part after the slash, without what a namespace cannot have. It is
/// empty if nothing remains.
pub fn namespace_of(name: &str) -> String {
    let last = name.rsplit('/').next().unwrap_or_default();
    let allowed = |c: char| if c.is_ascii_alphanumeric() || c == '_' || c == '-' { c } else { '-' };
    let mut plain: String = last.chars().map(allowed).take(SEGMENT_LIMIT).collect();
    while plain.contains("__") {
        plain = plain.replace("__", "_");
    }
    plain.trim_start_matches('-').trim_end_matches(['-', '_']).to_owned()
}

/// The fields that the schema of 2025-07-09 had in snake case, with their names since 2025-09-16.
const RENAMED: [(&str, &str); 11] = [
    ("registry_type", "registryType"),
    ("registry_base_url", "registryBaseUrl"),
    ("file_sha256", "fileSha256"),
    ("runtime_hint", "runtimeHint"),
    ("runtime_arguments", "runtimeArguments"),
    ("package_arguments", "packageArguments"),
    ("environment_variables", "environmentVariables"),
    ("is_required", "isRequired"),
    ("is_secret", "isSecret"),
    ("value_hint", "valueHint"),
    ("is_repeated", "isRepeated"),
];

/// Returns a server.json with the current field names.
fn in_camel_case(value: &Value) -> Value {
    match value {
        Value::Object(fields) => {
            let mut renamed = Map::with_capacity(fields.len());
            for (name, value) in fields {
                let now = RENAMED.iter().find(|(then, _)| then == name).map(|(_, now)| *now);
                // If the document has both names, the current one counts and the other is left as it is.
                let name = now.filter(|now| !fields.contains_key(*now)).unwrap_or(name);
                renamed.insert(name.to_owned(), in_camel_case(value));
            }
            Value::Object(renamed)
        }
        Value::Array(items) => items.iter().map(in_camel_case).collect(),
        other => other.clone(),
    }
}

fn install_of(package: &Value) -> Result<Install, String> {
    let text = |field: &str| package[field].as_str().unwrap_or_default();
    let (kind, identifier, version) = (text("registryType"), text("identifier"), text("version"));
    let what = format!("package `{identifier}`");
    // Before 2025-09-16, `transport` was not required, and stdio was the only one.
    if package.get("transport").is_some() && package["transport"]["type"] != "stdio" {
        return Err(format!("{what} does not use stdio"));
    }
    // The identifier becomes an argument of the command, so it must not be an option, a path or an
    // address, from which the command would fetch something else.
    let plain = |extra: &str| {
        !identifier.is_empty()
            && identifier.starts_with(|c: char| c.is_ascii_alphanumeric())
            && !identifier.contains("..")
            && identifier.chars().all(|c| c.is_ascii_alphanumeric() || extra.contains(c))
    };
    let (command, base, name_is_plain) = match kind {
        "npm" => {
            let is_plain = is_npm_name(identifier) && !is_archive(identifier);
            ("npx", "https://registry.npmjs.org", is_plain)
        }
        "pypi" => ("uvx", "https://pypi.org", plain("._-")),
        "oci" => ("docker", "https://docker.io", plain("/._:-")),
        _ => return Err(format!("{what} has the unknown type `{kind}`")),
    };
    if !name_is_plain {
        return Err(format!("{what} has no valid name for its type"));
    }
    // The commands ask the public registries only, where the same name may belong to somebody else.
    let stated = package["registryBaseUrl"].as_str().map(|url| url.trim_end_matches('/'));
    if stated.is_some_and(|url| url != base) {
        return Err(format!("{what} does not come from `{base}`"));
    }
    // An image may have its tag in its name.
    let spec = match (kind, version) {
        ("oci", "") if identifier.rsplit('/').next().is_some_and(|last| last.contains(':')) => {
            let tag = identifier.rsplit(':').next().unwrap_or_default();
            if !is_immutable(kind, tag) {
                return Err(format!("{what} has no immutable version"));
            }
            identifier.to_owned()
        }
        (_, version) if !is_immutable(kind, version) => {
            return Err(format!("{what} has no immutable version"));
        }
        ("oci", version) => format!("{identifier}:{version}"),
        // `npx` and `uvx` both read `name@version`.
        (_, version) => format!("{identifier}@{version}"),
    };
    let mut env_required = Vec::new();
    for variable in package["environmentVariables"].as_array().into_iter().flatten() {
        let name = variable["name"].as_str().unwrap_or_default();
        // The name follows `docker run -e`, which reads `NAME=value` as a value to set.
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
        // Without it, `npx` asks before it installs a package, and nobody can answer.
        "npm" => args.push("-y".to_owned()),
        "oci" => {
            args.extend(["run", "-i", "--rm"].map(str::to_owned));
            // With only a name, Docker takes the value from the environment of its client, so a
            // secret never appears among the arguments, which other processes can read.
            args.extend(env_required.iter().flat_map(|name| ["-e".to_owned(), name.clone()]));
        }
        _ => {}
    }
    // Other options of the runtime could weaken a container's isolation or run a different program.
    let harmless = ["-y", "--yes", "-i", "--interactive", "--rm", "-e", "--env"];
    for argument in package["runtimeArguments"].as_array().into_iter().flatten() {
        let option = argument["name"].as_str().or(argument["value"].as_str()).unwrap_or_default();
        // The harmless ones are not added: the arguments have those that the kind needs.
        if !harmless.contains(&option)
            || argument["value"].as_str().is_some_and(|value| value.contains('='))
        {
            return Err(format!("{what} needs the runtime option `{option}`"));
        }
    }
    args.push(spec);
    for argument in package["packageArguments"].as_array().into_iter().flatten() {
        let value = argument["value"].as_str().or(argument["default"].as_str());
        // A value with `{…}` is a template whose variables only the user knows.
        let open =
            value.is_some_and(|value| value.contains('{')) && argument.get("variables").is_some();
        let value = match value {
            Some(value) if !open => Some(value),
            _ if argument["isRequired"] == true => {
                return Err(format!("{what} needs an argument without a fixed value"));
            }
            _ => None,
        };
        match (argument["type"].as_str(), argument["name"].as_str(), value) {
            (Some("positional"), _, value) => args.extend(value.map(str::to_owned)),
            (Some("named"), Some(name), Some(value)) => {
                args.extend([name.to_owned(), value.to_owned()])
            }
            // An option without a value is a switch, unless the user should supply the value.
            (Some("named"), Some(name), None) if !open && argument.get("format").is_none() => {
                args.push(name.to_owned());
            }
            (Some("named"), Some(_), None) => {}
            _ => return Err(format!("{what} has an argument of an unknown type")),
        }
    }
    Ok(Install { command: command.to_owned(), args, env_required, ..Install::default() })
}

fn proxy_of(remote: &Value) -> Result<(String, Vec<String>), String> {
    let url = remote["url"].as_str().unwrap_or_default();
    let what = format!("remote `{url}`");
    if remote["type"] != "streamable-http" {
        return Err(format!("{what} does not use Streamable HTTP"));
    }
    let host = url.strip_prefix("https://").and_then(|rest| rest.split(['/', '?', '#']).next());
    // In `https://known.example@evil.example`, the host is the second name.
    let good = host.is_some_and(|host| !host.is_empty() && !host.contains('@'))
        // A `{` begins a variable of a template.
        && !url.contains(|c: char| c.is_whitespace() || c.is_control() || c == '{');
    if !good {
        return Err(format!("{what} is not a complete `https` address"));
    }
    let mut variables = Vec::new();
    for header in remote["headers"].as_array().into_iter().flatten() {
        let name = header["name"].as_str().unwrap_or_default();
        let value = header["value"].as_str().unwrap_or_default();
        let variable = value.strip_prefix("Bearer {").and_then(|rest| rest.strip_suffix('}'));
        match variable.and_then(secret_name) {
            Some(variable)
                if name.eq_ignore_ascii_case("authorization") && variables.is_empty() =>
            {
                variables.push(variable);
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

/// Returns the name under which the registry stores the secret of a variable: `[A-Z][A-Z0-9_]{0,127}`.
fn secret_name(variable: &str) -> Option<String> {
    let is_name = variable.len() <= 128
        && variable.starts_with(|c: char| c.is_ascii_alphabetic())
        && variable.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    is_name.then(|| variable.to_ascii_uppercase())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::{Fqdn, Scope};

    fn started(server: &Value) -> Install {
        match place_of(server) {
            Ok(ServerPlace::Stdio(install)) => install,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn accepts_pinned_packages_and_https_remotes() {
        let npm = json!({ "packages": [{
            "registryType": "npm", "identifier": "@a/b", "version": "1.2.3", "transport": { "type": "stdio" },
            "runtimeArguments": [{ "type": "named", "name": "-y" }],
            "packageArguments": [{ "type": "positional", "value": "serve" }, { "type": "named", "name": "--port", "value": "1" }],
            "environmentVariables": [{ "name": "A_KEY", "isRequired": true }, { "name": "B" }],
        }] });
        let install = started(&npm);
        assert_eq!(install.command, "npx");
        assert_eq!(install.args, ["-y", "@a/b@1.2.3", "serve", "--port", "1"]);
        assert_eq!(install.env_required, ["A_KEY"]);
        let oci = json!({ "packages": [{
            "registryType": "oci", "identifier": "ghcr.io/a/b:1.0.0", "transport": { "type": "stdio" },
        }] });
        assert_eq!(started(&oci).args, ["run", "-i", "--rm", "ghcr.io/a/b:1.0.0"]);
        // In the form of 2025-07-09.
        let old = json!({ "packages": [{
            "registry_type": "pypi", "registry_base_url": "https://pypi.org", "identifier": "a", "version": "1.2.3",
            "environment_variables": [{ "name": "A_KEY", "is_required": true, "is_secret": true }, { "name": "B" }],
            "package_arguments": [{ "type": "positional", "value_hint": "mode", "value": "serve" }],
        }] });
        let install = started(&old);
        assert_eq!(install.args, ["a@1.2.3", "serve"]);
        assert_eq!(install.env_required, ["A_KEY"]);
        let remote = json!({ "remotes": [{
            "type": "streamable-http", "url": "https://x.example/mcp",
            "headers": [{ "name": "Authorization", "value": "Bearer {x_key}", "isRequired": true }],
        }] });
        let url = "https://x.example/mcp".to_owned();
        let env_required = vec!["X_KEY".to_owned()];
        assert_eq!(place_of(&remote), Ok(ServerPlace::Http { url, env_required }));
    }

    #[test]
    fn refuses_mutable_versions_and_unsafe_options() {
        let good = json!({
            "registryType": "npm", "identifier": "a", "version": "1.2.3", "transport": { "type": "stdio" },
        });
        for (field, value) in [
            ("version", json!("latest")),
            ("version", json!("^1.2.3")),
            ("version", json!("1.2.3 && curl x")),
            ("version", json!(1)),
            ("version", json!("1.0.0-a.tgz")),
            ("identifier", json!("--package=evil")),
            ("identifier", json!("git+https://x/y")),
            ("identifier", json!("../x")),
            ("identifier", json!("owner/repo")),
            ("identifier", json!("@a/b/c")),
            ("identifier", json!("@a")),
            ("identifier", json!("@/b")),
            ("identifier", json!("a@b")),
            ("identifier", json!("a.tar.gz")),
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
            place_of(&json!({ "packages": [package] })).expect_err(&format!("{field} {value}"));
        }
        place_of(&json!({ "packages": [good] })).unwrap();
        for url in [
            "http://x.example/mcp",
            "https://u:p@x.example/",
            "https://{host}/mcp",
            "file:///etc/passwd",
            "",
        ] {
            place_of(&json!({ "remotes": [{ "type": "streamable-http", "url": url }] }))
                .expect_err(url);
        }
        place_of(&json!({})).expect_err("nothing");
    }

    #[test]
    fn which_versions_are_immutable_depends_on_the_package_type() {
        // Whether the version is immutable for npm, OCI and PyPI.
        for (version, immutable) in [
            ("1.2.3", [true, true, true]),
            ("v1.2.3", [true, true, true]),
            ("2025.12.11", [true, true, true]),
            ("1.2.3-rc.1+b.2", [true, true, true]),
            ("1.2.3-alpine", [true, true, false]),
            ("1.2.3-", [false, true, true]),
            ("1.2.3_1", [false, true, true]),
            ("1.2.3.4", [false, true, true]),
            ("1", [false, false, true]),
            ("1.2", [false, false, true]),
            ("1.2rc1.post2.dev3", [false, false, true]),
            ("1.2-1", [false, false, true]),
            ("1.x", [false, false, false]),
            ("1.X", [false, false, false]),
            ("1.2.x", [false, false, false]),
            ("1.2.X-1", [false, false, false]),
            ("1..2", [false, false, false]),
            ("1.2.", [false, false, false]),
            ("v", [false, false, false]),
            ("", [false, false, false]),
        ] {
            assert_eq!(
                ["npm", "oci", "pypi"].map(|kind| is_immutable(kind, version)),
                immutable,
                "{version}"
            );
        }
    }

    #[test]
    fn a_secret_of_a_remote_has_a_name_of_the_registry() {
        for (variable, name) in [
            ("x_key", Some("X_KEY")),
            ("A1", Some("A1")),
            ("", None),
            ("1x", None),
            ("_x", None),
            ("x-y", None),
            ("ſ", None),
            (&"x".repeat(129), None),
        ] {
            let value = format!("Bearer {{{variable}}}");
            let remote = json!({
                "type": "streamable-http", "url": "https://x.example/",
                "headers": [{ "name": "Authorization", "value": value }],
            });
            let (_, names) = proxy_of(&remote).unwrap();
            assert_eq!(names, Vec::from_iter(name), "{variable}");
        }
    }

    #[test]
    fn derives_a_namespace_from_a_name() {
        for (name, namespace) in [
            ("io.x/weather", "weather"),
            ("a/b.c_d", "b-c_d"),
            ("a/-x-", "x"),
            ("a/...", ""),
            ("a/b___c", "b_c"),
            ("a/b_____c__", "b_c"),
            ("a/b_-_", "b"),
            ("a/-_b", "_b"),
            (&format!("a/{}_c", "b".repeat(127)), &"b".repeat(127)),
        ] {
            assert_eq!(namespace_of(name), namespace);
            if !namespace.is_empty() {
                Fqdn::server(Scope::public(), namespace).unwrap();
            }
        }
    }
}
