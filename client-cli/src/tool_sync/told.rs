//! What is told of a server: its tools, without what `pml` knows of the machine and of how the server is started.

use execution::sanitize_tool;
use protocol::redaction::{Redactor, keys_in_use};
use protocol::{
    SYNCED_SERVER_BYTES, SYNCED_TOOL_BYTES, SYNCED_TOOLS, SyncedTool, ToolDescriptor, ToolId,
};
use serde_json::Value;

use crate::consent::decision::why_refused;
use crate::consent::permissions::Permissions;
use crate::local_mcp::ServerSpec;
use crate::processes::environment::Environment;
use crate::workspace::Workspace;

/// The minimum length of a text of an entry that is removed: a shorter one also occurs in ordinary sentences.
const LITERAL_MIN: usize = 8;
/// The minimum length of the value of a variable, or of a path, that is removed.
const VALUE_MIN: usize = 4;

/// What `pml` knows of the machine and of how a server is started.
pub(super) struct Known(Vec<Redactor>);

impl Known {
    /// Collects the folders, the name of the machine, and the texts of a server's entry with the user's variables in it.
    pub(super) fn of(spec: &ServerSpec, environment: &Environment, workspace: &Workspace) -> Self {
        let mut values = Vec::new();
        let folders = workspace.root_paths().into_iter().chain(std::env::home_dir());
        let folders =
            folders.chain(spec.seal.iter().flat_map(|seal| [&seal.home, &seal.packages]).cloned());
        values.extend(folders.filter_map(|path| path.to_str().map(str::to_owned)));
        values.extend(
            std::fs::read_to_string("/proc/sys/kernel/hostname").map(|name| name.trim().to_owned()),
        );
        values.extend(
            spec.env_required.iter().filter_map(|name| environment.get(name)).map(str::to_owned),
        );
        values.retain(|value| value.len() >= VALUE_MIN && value != "localhost");
        let remote = spec.remote.iter();
        let addresses = remote.clone().flat_map(|remote| {
            let host = remote.url.host_str().map(str::to_owned);
            [Some(remote.url.to_string()), host].into_iter().flatten()
        });
        let written = spec.args.iter().chain(spec.env.values()).chain(spec.cwd.iter());
        let written = written.chain(remote.flat_map(|remote| remote.headers.values()));
        let written = std::iter::once(&spec.command).chain(written).cloned().chain(addresses);
        for text in written {
            // The variable that is missing is not known either.
            let (text, used) = environment.expand(&text).unwrap_or_else(|_| (text, Vec::new()));
            values.extend(used.into_iter().filter(|value| value.len() >= VALUE_MIN));
            // The value of `--name=value`.
            let value = text.split_once('=').map(|(_, value)| value.to_owned());
            let texts = [Some(text), value].into_iter().flatten();
            values.extend(texts.filter(|text| text.len() >= LITERAL_MIN));
        }
        // Longest first, so that no rest of a longer one stays.
        values.sort_by_key(|value| std::cmp::Reverse(value.len()));
        values.dedup();
        Self(values.iter().map(|value| Redactor::new(value)).collect())
    }

    fn removed_from(&self, value: &mut Value) {
        for redactor in &self.0 {
            redactor.value(value);
        }
    }
}

/// Returns what is told of a server's tools: those that can be called, by name, as many as the gateway takes.
pub(super) fn told(
    namespace: &str,
    tools: &[ToolDescriptor],
    spec: &ServerSpec,
    known: &Known,
    permissions: &Permissions,
) -> Vec<SyncedTool> {
    let can_be_called = |tool: &&ToolDescriptor| {
        let id = ToolId::new(namespace, &tool.name).ok().filter(ToolId::is_plain);
        let is_offered = spec.tools.as_ref().is_none_or(|tools| tools.contains(&tool.name));
        is_offered && id.is_some_and(|id| why_refused(permissions, &id).is_none())
    };
    let mut told: Vec<SyncedTool> =
        tools.iter().filter(can_be_called).map(|tool| clean(tool, known)).collect();
    told.sort_by(|a, b| a.name.cmp(&b.name));
    told.dedup_by(|a, b| a.name == b.name);
    let (all, mut bytes) = (told.len(), 0);
    told.retain(|tool| {
        let size = serde_json::to_vec(tool).map_or(usize::MAX, |text| text.len());
        let fits = size <= SYNCED_TOOL_BYTES && bytes + size < SYNCED_SERVER_BYTES - SYNCED_TOOLS;
        bytes += if fits { size } else { 0 };
        fits
    });
    told.truncate(SYNCED_TOOLS);
    if told.len() < all {
        let left_out = all - told.len();
        tracing::warn!(
            server = namespace,
            left_out,
            "Some tools are more than the gateway is told"
        );
    }
    told
}

fn clean(tool: &ToolDescriptor, known: &Known) -> SyncedTool {
    let mut tool = SyncedTool::from(tool);
    let mut description = Value::String(tool.description);
    let schemas = std::iter::once(&mut tool.input_schema).chain(&mut tool.output_schema);
    for value in std::iter::once(&mut description).chain(schemas) {
        keys_in_use_removed(value);
        known.removed_from(value);
    }
    tool.description = description.as_str().unwrap_or_default().to_owned();
    if !tool.input_schema.is_object() {
        tool.input_schema = Value::Object(serde_json::Map::new());
    }
    tool.output_schema = tool.output_schema.filter(Value::is_object);
    // Afterwards: what it keeps of a text must not depend on what was cut from it.
    sanitize_tool(&tool)
}

/// Removes the keys of `pml` itself.
fn keys_in_use_removed(value: &mut Value) {
    match value {
        Value::String(text) => {
            if let std::borrow::Cow::Owned(clean) = keys_in_use().text(text) {
                *text = clean;
            }
        }
        Value::Array(items) => items.iter_mut().for_each(keys_in_use_removed),
        Value::Object(members) => members.values_mut().for_each(keys_in_use_removed),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde_json::json;

    use super::*;
    use crate::consent::permissions::PermissionRules;

    fn tools(list: Value) -> Vec<ToolDescriptor> {
        serde_json::from_value(list).unwrap()
    }

    fn permissions(rules: Value) -> Permissions {
        let rules: PermissionRules = serde_json::from_value(rules).unwrap();
        Permissions::new(rules, ".pml.json")
    }

    #[test]
    fn nothing_of_the_entry_or_the_machine_is_told() {
        let folder = tempfile::tempdir().unwrap();
        let workspace = Workspace::open(folder.path()).unwrap();
        let root = workspace.root().display().to_string();
        let environment = Environment::of([
            ("TOKEN".to_owned(), "telltale-of-a-variable".to_owned()),
            ("SHORT".to_owned(), "tt41".to_owned()),
        ]);
        let spec = ServerSpec {
            command: "telltale-command".to_owned(),
            args: vec!["-y".to_owned(), "--db=telltale:database".to_owned(), "tidy".to_owned()],
            env: BTreeMap::from([
                ("A".to_owned(), "${TOKEN}".to_owned()),
                ("B".to_owned(), "${SHORT}".to_owned()),
            ]),
            env_required: vec!["TOKEN".to_owned()],
            ..ServerSpec::default()
        };
        let known = Known::of(&spec, &environment, &workspace);
        let text = format!(
            "Keeps it tidy -y. Runs telltale-command on telltale:database in {root}/x with telltale-of-a-variable or tt41."
        );
        let list = tools(json!([{ "name": "keep", "description": text, "inputSchema": {
            "type": "object", "properties": { "telltale:database": { "description": text, "enum": ["telltale-command"] } },
        } }]));
        let told = told("mine", &list, &spec, &known, &permissions(json!({})));
        let sent = serde_json::to_string(&told).unwrap();
        assert!(told[0].description.starts_with("Keeps it tidy -y. Runs [redacted] on"), "{sent}");
        for gone in ["telltale", "tt41", root.as_str()] {
            assert!(!sent.contains(gone), "{gone}: {sent}");
        }
    }

    #[test]
    fn only_tools_that_can_be_called_are_told() {
        let folder = tempfile::tempdir().unwrap();
        let workspace = Workspace::open(folder.path()).unwrap();
        let spec = ServerSpec {
            tools: Some(["b", "a", "denied", "large"].map(str::to_owned).into()),
            ..ServerSpec::default()
        };
        let known = Known::of(&spec, &Environment::of([]), &workspace);
        let mut list: Vec<Value> = ["b", "a", "hidden", "denied", "no name", "a"]
            .map(|name| json!({ "name": name, "inputSchema": {} }))
            .into();
        let properties: serde_json::Map<_, _> =
            (0..9000).map(|n| (format!("p{n}"), json!({ "type": "string" }))).collect();
        list.push(json!({ "name": "large", "inputSchema": { "properties": properties } }));
        let denied = permissions(json!({ "deny": ["mine:denied"] }));
        let told = told("mine", &tools(json!(list)), &spec, &known, &denied);
        let names: Vec<_> = told.iter().map(|tool| tool.name.as_str()).collect();
        assert_eq!(names, ["a", "b"]);
    }
}
