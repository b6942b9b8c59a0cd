//! `pml_discover`: the request, and how found tools are rendered for a model.

use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Value, json};

use crate::model_text::{TextFlags, description_for_model, line_for_model, schema_for_model};
use crate::ranking::{self, Described, Intent};
use crate::signature::signature;
use crate::{ErrorBody, ErrorCode, Routing, ToolDescriptor, ToolId, ToolUseType};

/// The default number of tools in an answer.
const DEFAULT_LIMIT: usize = 10;
/// The maximum number of tools in an answer.
const MAX_LIMIT: usize = 50;
/// The maximum number of intents in one request.
const INTENTS_LIMIT: usize = 10;
/// The number of names suggested for an unknown one.
pub const SUGGESTIONS: usize = 3;
/// The number of tools that match words of an unknown name and are then compared with it by edit distance.
pub const NEAR: usize = 20;
/// The id of the tool by which a program finds tools.
pub const SEARCH_TOOLS: &str = "pml:search_tools";

/// Describes the tool by which a program finds tools. Its results are those of `pml_discover`.
pub fn search_tools() -> ToolDescriptor {
    ToolDescriptor {
        name: "search_tools".to_owned(),
        description:
            "Finds tools that programs can call, best first, with a signature and a score each."
                .to_owned(),
        input_schema: json!({
            "type": "object",
            "properties": {
                "query": { "type": "string", "description": "What the tool should do, in words." },
                "limit": { "type": "integer", "minimum": 1, "maximum": MAX_LIMIT },
                "intents": { "type": "array", "items": { "type": "string" } },
                "pattern": { "type": "string" },
                "name": { "type": "string" },
                "intent": { "type": "string", "description": "The same as `query`." },
            },
        }),
        output_schema: Some(json!({
            "type": "object",
            "properties": { "tools": { "type": "array", "items": {
                "type": "object",
                "properties": {
                    "id": { "type": "string" },
                    "signature": { "type": "string" },
                    "description": { "type": "string" },
                    "routing": { "enum": ["client", "server"] },
                    "score": { "type": "number" },
                    "offline": { "type": "string", "description": "The gateway is unreachable, as reported before." },
                },
                "required": ["id", "signature", "description", "routing", "score"],
            } } },
        })),
        annotations: None,
    }
}

/// The arguments of `pml_discover`, and of `mcp.pml.search_tools`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DiscoverRequest {
    /// What the tool should do, in words.
    #[serde(default, alias = "query", skip_serializing_if = "Option::is_none")]
    pub intent: Option<String>,
    /// Several intents at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub intents: Option<Vec<String>>,
    /// A tool pattern.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pattern: Option<String>,
    /// One tool's exact id, or a namespace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The maximum number of results, 1 to 50; with several intents, for each.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "limit")]
    pub limit: Option<u32>,
    /// Additional conditions on a tool.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub filter: Option<DiscoverFilter>,
    /// Additional fields of each tool.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub include: Vec<DiscoverInclude>,
}

/// Conditions on a tool in addition to the match.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DiscoverFilter {
    /// Tool or capability.
    #[serde(default, rename = "type", skip_serializing_if = "Option::is_none")]
    pub kind: Option<ToolUseType>,
    /// Where it runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub routing: Option<Routing>,
    /// Whether the operator marked it as read-only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub read_only: Option<bool>,
}

/// A part of a found tool that is included on request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "&'static str", try_from = "String")]
pub enum DiscoverInclude {
    /// Its full name, description and schemas.
    Schemas,
}

impl From<DiscoverInclude> for &'static str {
    fn from(DiscoverInclude::Schemas: DiscoverInclude) -> Self {
        "schemas"
    }
}

impl TryFrom<String> for DiscoverInclude {
    type Error = String;

    fn try_from(word: String) -> Result<Self, String> {
        if word == "schemas" {
            return Ok(Self::Schemas);
        }
        // The caller chose the word, so the message repeats only its beginning.
        let word: String = word.chars().take(64).collect();
        Err(format!("`include` has no `{}`; it takes `schemas`", crate::escape_text(&word)))
    }
}

/// The subject of a search.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Lookup {
    /// What the tool should do, in words.
    Intent(String),
    /// Several intents.
    Intents(Vec<String>),
    /// A pattern for ids, in which `*` matches any text.
    Pattern(String),
    /// One tool, or all of a namespace.
    Name(String),
}

impl DiscoverRequest {
    /// Reads the arguments of `mcp.pml.search_tools`.
    ///
    /// # Errors
    /// Returns `INVALID_ARGUMENTS` for unknown or malformed fields.
    pub fn of_program(arguments: Value) -> Result<Self, ErrorBody> {
        let arguments = if arguments.is_null() { json!({}) } else { arguments };
        serde_json::from_value(arguments).map_err(|error| {
            let message = format!("the arguments of `{SEARCH_TOOLS}`: {error}");
            ErrorBody::new(ErrorCode::InvalidArguments, message)
        })
    }

    /// Returns the subject of the search; by default, every tool.
    ///
    /// # Errors
    /// Returns `INVALID_REQUEST` for more than one subject, or a wrong number of intents.
    pub fn lookup(&self) -> Result<Lookup, ErrorBody> {
        let subjects = [
            self.intent.clone().map(Lookup::Intent),
            self.intents.clone().map(Lookup::Intents),
            self.pattern.clone().map(Lookup::Pattern),
            self.name.clone().map(Lookup::Name),
        ];
        let mut subjects = subjects.into_iter().flatten();
        let lookup = subjects.next().unwrap_or_else(|| Lookup::Pattern("*".to_owned()));
        if subjects.next().is_some() {
            return Err(invalid(
                "give one of `intent`, `intents`, `pattern` and `name`, for example {\"intent\": \"read a file\"}",
            ));
        }
        match &lookup {
            Lookup::Intents(intents) if !(1..=INTENTS_LIMIT).contains(&intents.len()) => {
                Err(invalid(&format!("`intents` takes 1 to {INTENTS_LIMIT} texts")))
            }
            _ => Ok(lookup),
        }
    }

    /// Returns the number of tools in the answer.
    ///
    /// # Errors
    /// Returns `INVALID_REQUEST` if the limit is out of range.
    pub fn limit(&self) -> Result<usize, ErrorBody> {
        match self.limit.map(|limit| limit as usize) {
            None => Ok(DEFAULT_LIMIT),
            Some(limit) if (1..=MAX_LIMIT).contains(&limit) => Ok(limit),
            Some(_) => Err(invalid(&format!("`limit` must be a number from 1 to {MAX_LIMIT}"))),
        }
    }
}

/// Reads the limit. Anything that is not a number becomes out of range, so that the error names the range.
fn limit<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u32>, D::Error> {
    let limit = Value::deserialize(deserializer)?;
    if limit.is_null() {
        return Ok(None);
    }
    Ok(Some(limit.as_u64().and_then(|limit| u32::try_from(limit).ok()).unwrap_or(u32::MAX)))
}

fn invalid(message: &str) -> ErrorBody {
    ErrorBody::new(ErrorCode::InvalidRequest, message)
}

/// What a tool of the user's own machine needs, in the answer to a client that is not there.
const OWN_MACHINE: &str = "`pml` on the user's machine; it cannot be called from here";

/// A found tool, before it is rendered.
#[derive(Debug, Clone, PartialEq)]
pub struct FoundTool {
    /// Its id.
    pub id: ToolId,
    /// The registry's full name, if it has one.
    pub fqdn: Option<String>,
    /// Tool or capability.
    pub kind: ToolUseType,
    /// Where a call of it would run.
    pub routing: Routing,
    /// Whether the operator marked it as read-only.
    pub read_only: bool,
    /// Whether its structured content is `{value: x}`, of which a program gets `x`.
    pub wraps_value: bool,
    /// The score, from 0 to 1.
    pub score: f32,
    /// The version of a capability or a published server.
    pub version: Option<String>,
    /// The entries to which its name would resolve without it.
    pub hides: Vec<String>,
    /// Whether only the user's own machine has it, which is not where it is searched for.
    pub own_machine: bool,
    /// Its description and schemas.
    pub descriptor: ToolDescriptor,
}

impl FoundTool {
    /// Scores the tool for an intent.
    #[must_use]
    pub fn scored(mut self, intent: &Intent) -> Self {
        let (description, input_schema) =
            (&self.descriptor.description, &self.descriptor.input_schema);
        // The gateway's index scores plain ids as well, so that both sides give a tool the same
        // score.
        let id = self.id.plain();
        self.score = intent.score(&Described { id: &id, description, input_schema });
        self
    }

    /// Returns whether the tool meets the conditions of a filter.
    pub fn passes(&self, filter: Option<&DiscoverFilter>) -> bool {
        filter.is_none_or(|filter| {
            filter.kind.is_none_or(|kind| kind == self.kind)
                && filter.routing.is_none_or(|routing| routing == self.routing)
                && filter.read_only.is_none_or(|read_only| read_only == self.read_only)
        })
    }

    /// Renders the tool briefly: its signature, its description, its routing.
    pub fn render(&self, include: &[DiscoverInclude]) -> Value {
        // Untrusted publishers wrote these texts, and a model reads them.
        let mut flags = TextFlags::default();
        let ToolDescriptor { description, input_schema, output_schema, .. } = &self.descriptor;
        let result = output_schema.as_ref().map(|schema| self.result_schema(schema));
        let mut rendered = json!({
            "id": self.id,
            "signature": signature(&self.id, input_schema, result, &mut flags),
            "description": line_for_model(description, &mut flags),
            "routing": self.routing,
            "score": ranking::rounded(self.score),
        });
        // Fields with their usual value are omitted: each costs the model tokens, once per tool.
        if self.kind == ToolUseType::Capability {
            rendered["type"] = json!(self.kind);
        }
        if self.read_only {
            rendered["read_only"] = json!(true);
        }
        if let Some(version) = &self.version {
            rendered["version"] = json!(version);
        }
        if self.own_machine {
            rendered["needs"] = json!(OWN_MACHINE);
        }
        if !self.hides.is_empty() {
            rendered["hides"] = json!(self.hides);
        }
        if include.contains(&DiscoverInclude::Schemas) {
            if let Some(fqdn) = &self.fqdn {
                rendered["fqdn"] = json!(fqdn);
            }
            rendered["description"] = description_for_model(description, &mut flags).into();
            rendered["input_schema"] = schema_for_model(input_schema, &mut flags);
            if let Some(schema) = output_schema {
                rendered["output_schema"] = schema_for_model(schema, &mut flags);
            }
        }
        // Last, because every text above may add a flag.
        if !flags.is_empty() {
            rendered["flags"] = json!(flags.words());
        }
        rendered
    }

    /// Returns the schema of the value that a program receives, as converted by [`crate::unwrap_tool_result`].
    fn result_schema<'a>(&self, schema: &'a Value) -> &'a Value {
        let properties = schema.get("properties").and_then(Value::as_object);
        let only = properties.filter(|properties| properties.len() == 1);
        let inner = only.and_then(|properties| {
            // The conversion also requires that the only text block repeats `content`, which no
            // schema states. The reference filesystem server does repeat it.
            let text = properties.get("content").filter(|inner| inner["type"] == "string");
            text.or_else(|| properties.get("value").filter(|_| self.wraps_value))
        });
        inner.unwrap_or(schema)
    }
}

/// Renders the results for several intents; a repeated tool is reduced to its id and score.
pub fn render_by_intent(found: Vec<(String, Vec<Value>)>) -> Value {
    let mut rendered: Vec<Value> = Vec::new();
    let results: Vec<Value> = found
        .into_iter()
        .map(|(intent, tools)| {
            let tools: Vec<Value> = tools
                .into_iter()
                .map(|tool| {
                    // A list is fast enough: there are at most ten intents with 50 tools each.
                    if rendered.contains(&tool["id"]) {
                        return json!({ "id": tool["id"], "score": tool["score"] });
                    }
                    rendered.push(tool["id"].clone());
                    tool
                })
                .collect();
            json!({ "intent": intent, "tools": tools })
        })
        .collect();
    json!({ "results": results })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(arguments: Value) -> Result<(Lookup, usize), ErrorBody> {
        let request: DiscoverRequest =
            serde_json::from_value(arguments).map_err(|error| invalid(&error.to_string()))?;
        Ok((request.lookup()?, request.limit()?))
    }

    #[test]
    fn errors_name_the_accepted_form() {
        assert_eq!(request(json!({})), Ok((Lookup::Pattern("*".to_owned()), 10)));
        let intent = Lookup::Intent("x".to_owned());
        assert_eq!(request(json!({ "query": "x", "limit": 50 })), Ok((intent, 50)));
        for (wrong, rendered) in [
            (json!({ "intent": "x", "name": "a:b" }), "{\"intent\": \"read a file\"}"),
            (json!({ "intents": [] }), "1 to 10"),
            (json!({ "limit": 0 }), "1 to 50"),
            (json!({ "limit": 51 }), "1 to 50"),
            (json!({ "limit": -1.5 }), "1 to 50"),
            (json!({ "include": ["all"] }), "`schemas`"),
            (json!({ "what": "x" }), "`intent`"),
            (json!({ "filter": { "routing": "moon" } }), "moon"),
        ] {
            let error = request(wrong.clone()).unwrap_err();
            assert!(error.message.contains(rendered), "{wrong}: {}", error.message);
        }
    }

    #[test]
    fn renders_a_tool_briefly() {
        let found = FoundTool {
            id: "filesystem:read_text_file".parse().unwrap(),
            fqdn: Some("pml.mcp.filesystem.read_text_file".to_owned()),
            kind: ToolUseType::Tool,
            routing: Routing::Client,
            read_only: false,
            wraps_value: false,
            score: 0.876_5,
            version: None,
            hides: Vec::new(),
            own_machine: false,
            descriptor: serde_json::from_value(json!({
                "name": "read_text_file",
                "description": "Reads a file as text. It has more to say.",
                "inputSchema": { "type": "object", "properties": { "path": { "type": "string" } }, "required": ["path"] },
                "outputSchema": { "type": "object", "properties": { "content": { "type": "string" } } },
            }))
            .unwrap(),
        };
        let short = json!({
            "id": "filesystem:read_text_file",
            "signature": "mcp.filesystem.read_text_file({ path: string }) => Promise<string>",
            "description": "Reads a file as text.",
            "routing": "client",
            "score": 0.88,
        });
        assert_eq!(found.render(&[]), short);
        let long = found.render(&[DiscoverInclude::Schemas]);
        assert_eq!(long["description"], "Reads a file as text. It has more to say.");
        assert_eq!(long["input_schema"]["required"], json!(["path"]));
        assert_eq!(long["fqdn"], "pml.mcp.filesystem.read_text_file");
        let both = vec![("a".to_owned(), vec![short.clone()]), ("b".to_owned(), vec![short])];
        let rendered = render_by_intent(both);
        assert_eq!(
            rendered["results"][1]["tools"][0],
            json!({ "id": "filesystem:read_text_file", "score": 0.88 })
        );
    }
}
