//! The gateway's tools from earlier searches, for use while it is unreachable.
//!
//! They are stored separately for each gateway and API key, because another key may see different tools.

use std::collections::BTreeMap;

use protocol::discovery::{DiscoverFilter, Lookup};
use protocol::ranking::{self, Described, Intent};
use protocol::{Routing, ToolId, ToolUseType};
use serde_json::{Value, json};

use super::glob;
use crate::app::App;
use crate::files::dated::Answers;
use crate::files::records::{RecordFile, age, now};

/// The folder among the user's records.
const FOLDER: &str = "discovered";
/// The maximum size of a record in bytes.
const RECORD_LIMIT: usize = 4 * 1024 * 1024;
/// The maximum total size of the stored tools in bytes; the newest have priority.
const TOOLS_LIMIT: usize = RECORD_LIMIT / 2;
/// The maximum size of a stored tool in bytes. A tool rarely has more than 4 KiB.
const TOOL_LIMIT: usize = 64 * 1024;

/// The tools that one gateway returned for one API key.
#[derive(Debug)]
pub(super) struct Remembered {
    answers: Answers<Value>,
}

/// A search that the gateway has answered.
#[derive(Debug)]
pub(super) struct Answered {
    pub(super) lookup: Lookup,
    pub(super) tools: Vec<Value>,
    /// Whether the answer has every matching tool.
    pub(super) complete: bool,
}

impl Remembered {
    /// Reads the stored tools. Without an API key there are none.
    pub(super) async fn load(app: &App) -> Option<Self> {
        Some(Self::read(record_file(app).await?))
    }

    /// Stores answers in the background, so that no request waits for the disk.
    pub(super) async fn learn_later(app: &App, answers: Vec<Answered>) {
        let Some(file) = record_file(app).await else { return };
        tokio::task::spawn_blocking(move || {
            let mut remembered = Self::read(file);
            if remembered.learn(&answers)
                && let Err(error) = remembered.save()
            {
                tracing::debug!(%error, "Could not store the gateway's tools");
            }
        });
    }

    fn read(file: RecordFile) -> Self {
        Self { answers: Answers::read(file) }
    }

    /// Stores answers; returns whether they contain anything new.
    fn learn(&mut self, answers: &[Answered]) -> bool {
        let mut changed = false;
        for answered in answers {
            let tools = answered.tools.iter().filter_map(|tool| {
                let id = tool["id"].as_str()?.parse::<ToolId>().ok()?;
                Some((id, without_score(tool)))
            });
            let tools: BTreeMap<ToolId, Value> = tools.collect();
            if answered.complete {
                // A matching tool that is not in a complete answer no longer exists.
                changed |= self.answers.remove(|id, tool| {
                    !tools.contains_key(id) && matches(&answered.lookup, id, tool)
                });
            }
            for (id, tool) in tools {
                changed |= self.answers.store(id, tool);
            }
        }
        changed
    }

    fn save(&self) -> Result<(), std::io::Error> {
        // The limit leaves half of the record for ids and times: a record beyond its own limit
        // would not be written at all.
        let (mut room, mut is_full) = (TOOLS_LIMIT, false);
        self.answers.write(|tool| {
            let size = tool.to_string().len();
            if is_full || size > TOOL_LIMIT {
                return false;
            }
            match room.checked_sub(size) {
                Some(rest) => room = rest,
                // Ends the list, so that no older and smaller tool takes the place of a newer one.
                None => is_full = true,
            }
            !is_full
        })
    }

    /// Returns the stored tools that match, in the gateway's form, each with its score and its age.
    pub(super) fn find(&self, lookup: &Lookup, filter: Option<&DiscoverFilter>) -> Vec<Value> {
        let intent = match lookup {
            Lookup::Intent(intent) => Some(Intent::new(intent)),
            _ => None,
        };
        let now = now();
        let found = self.answers.tools().iter().filter(|(id, entry)| {
            // For an intent, every tool is returned with its score: the caller ranks them with
            // those of this machine.
            passes(&entry.tool, filter) && (intent.is_some() || matches(lookup, id, &entry.tool))
        });
        let found = found.map(|(id, entry)| {
            let mut tool = entry.tool.clone();
            let score = intent.as_ref().map_or(1.0, |intent| {
                // As in `FoundTool::scored`, so that the scores are comparable.
                let plain = id.plain();
                let description = tool["description"].as_str().unwrap_or_default();
                let input_schema = &tool["input_schema"];
                intent.score(&Described { id: &plain, description, input_schema })
            });
            tool["score"] = json!(ranking::rounded(score));
            // The clock may have been set back since the answer was stored.
            tool["offline"] = format!("as of {} ago", age(now.saturating_sub(entry.at))).into();
            tool
        });
        found.collect()
    }

    /// Returns the ids of all stored tools.
    pub(super) fn ids(&self) -> Vec<Value> {
        self.answers.tools().keys().map(|id| json!(id)).collect()
    }
}

/// Removes the score, which belongs to a search and not to the tool.
fn without_score(tool: &Value) -> Value {
    let mut tool = tool.clone();
    if let Some(fields) = tool.as_object_mut() {
        fields.shift_remove("score");
        // This field is added only here, in `find`.
        fields.shift_remove("offline");
    }
    tool
}

/// Returns whether a tool has the requested name, or matches the requested pattern; intents never match.
fn matches(lookup: &Lookup, id: &ToolId, tool: &Value) -> bool {
    match lookup {
        Lookup::Intent(_) | Lookup::Intents(_) => false,
        Lookup::Pattern(pattern) => glob(pattern).is_ok_and(|glob| glob.is_match(id.as_str())),
        Lookup::Name(name) => {
            id.as_str() == name || id.namespace() == name || tool["fqdn"] == name.as_str()
        }
    }
}

fn passes(tool: &Value, filter: Option<&DiscoverFilter>) -> bool {
    filter.is_none_or(|filter| {
        // The gateway states the type of capabilities only.
        let kind = match tool["type"].as_str() {
            Some("capability") => ToolUseType::Capability,
            _ => ToolUseType::Tool,
        };
        let routing = serde_json::from_value::<Routing>(tool["routing"].clone()).ok();
        filter.kind.is_none_or(|wanted| wanted == kind)
            && filter.routing.is_none_or(|wanted| Some(wanted) == routing)
            && filter.read_only.is_none_or(|wanted| wanted == (tool["read_only"] == true))
    })
}

/// Returns the record file of this gateway and API key.
async fn record_file(app: &App) -> Option<RecordFile> {
    let cloud = app.cloud().ok()?;
    let owner = format!("{}\0{}", cloud.gateway(), cloud.principal().await?);
    Some(RecordFile::new(app.records(), FOLDER, &owner, RECORD_LIMIT))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tool(id: &str) -> Value {
        json!({ "id": id, "description": "Brews coffee.", "routing": "server", "score": 0.7,
                "fqdn": format!("a.b.{}", id.replace(':', ".")), "input_schema": {} })
    }

    fn open(folder: &tempfile::TempDir) -> Remembered {
        Remembered::read(record(folder))
    }

    fn record(folder: &tempfile::TempDir) -> RecordFile {
        RecordFile::new(folder.path(), FOLDER, "one", RECORD_LIMIT)
    }

    fn pattern(pattern: &str) -> Lookup {
        Lookup::Pattern(pattern.to_owned())
    }

    fn ids(found: &[Value]) -> Vec<&str> {
        found.iter().map(|tool| tool["id"].as_str().unwrap()).collect()
    }

    fn answered(lookup: Lookup, tools: &[&str], complete: bool) -> Answered {
        Answered { lookup, tools: tools.iter().map(|id| tool(id)).collect(), complete }
    }

    #[test]
    fn a_tool_is_remembered_until_the_gateway_no_longer_has_it() {
        let folder = tempfile::tempdir().unwrap();
        let mut first = open(&folder);
        let brew = Lookup::Intent("brew coffee".to_owned());
        assert!(first.learn(&[answered(brew.clone(), &["x:brew", "y:brew"], false)]));
        assert!(!first.learn(&[answered(brew.clone(), &["x:brew"], false)]), "nothing new");
        first.save().unwrap();
        let mut again = open(&folder);
        let found = again.find(&brew, None);
        assert_eq!(ids(&found), ["x:brew", "y:brew"]);
        assert!(found[0]["score"].as_f64().unwrap() > 0.4, "{found:?}");
        assert_eq!(found[0]["offline"], "as of less than a minute ago");
        let named = |name: &str| Lookup::Name(name.to_owned());
        for name in ["x", "x:brew", "a.b.x.brew"] {
            assert_eq!(ids(&again.find(&named(name), None)), ["x:brew"], "{name}");
        }
        assert_eq!(ids(&again.find(&pattern("*:brew"), None)), ["x:brew", "y:brew"]);
        let client = DiscoverFilter { routing: Some(Routing::Client), ..DiscoverFilter::default() };
        assert_eq!(again.find(&brew, Some(&client)), [] as [Value; 0]);

        again.learn(&[answered(brew.clone(), &[], true), answered(pattern("x:*"), &[], false)]);
        assert_eq!(ids(&again.find(&pattern("*"), None)), ["x:brew", "y:brew"]);
        assert!(again.learn(&[answered(named("x:brew"), &[], true)]));
        assert_eq!(ids(&again.find(&pattern("*"), None)), ["y:brew"]);
    }

    #[test]
    fn the_newest_tools_have_priority() {
        let folder = tempfile::tempdir().unwrap();
        let mut first = open(&folder);
        for n in 0..100 {
            let mut one = tool(&format!("x:t{n}"));
            one["description"] = "é".repeat(30_000 / 2).into();
            first.answers.store_at(format!("x:t{n}").parse().unwrap(), n, one);
        }
        let mut large = tool("x:large");
        large["description"] = "x".repeat(TOOL_LIMIT).into();
        first.answers.store_at("x:large".parse().unwrap(), 1_000, large);
        first.save().unwrap();
        let found = open(&folder).find(&pattern("*"), None);
        let found = ids(&found);
        // Each tool has about 30 KB, so the limit of 2 MiB has room for 69 of them.
        assert!((60..100).contains(&found.len()), "{}", found.len());
        assert!(
            found.contains(&"x:t99") && !found.contains(&"x:t0") && !found.contains(&"x:large")
        );
    }

    #[test]
    fn an_unreadable_record_counts_as_absent() {
        let folder = tempfile::tempdir().unwrap();
        for text in
            ["", "{", "[]", "{\"version\":2,\"tools\":{}}", "{\"version\":1,\"tools\":{\"x\":1}}"]
        {
            record(&folder).write(text.as_bytes()).unwrap();
            assert_eq!(open(&folder).find(&pattern("*"), None), [] as [Value; 0], "{text}");
        }
    }
}
