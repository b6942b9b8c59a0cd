//! `pml_discover` and `mcp.pml.search_tools` on the user's machine: what can be called from here.
//!
//! These are the user's own MCP servers, the tools built into `pml`, and the gateway's tools, in one list with one
//! scoring. Without a gateway the others are still found, along with its earlier answers, and the answer states what
//! is missing.

mod remembered;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use globset::{GlobBuilder, GlobMatcher};
use protocol::discovery::{
    DiscoverFilter, DiscoverInclude, DiscoverRequest, FoundTool, Lookup, SUGGESTIONS,
    render_by_intent,
};
use protocol::model_text::{TextFlags, line_for_model};
use protocol::ranking::{self, Intent};
use protocol::{ErrorBody, ErrorCode, Routing, ToolDescriptor, ToolId, ToolUseType, meta_tools};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use self::remembered::{Answered, Remembered};
use crate::app::App;
use crate::consent::decision::why_refused;
use crate::consent::permissions::Permissions;
use crate::tools;

/// The time limit of the gateway's answer; local results need not wait for it.
const GATEWAY_PATIENCE: Duration = Duration::from_secs(10);
/// How long a server may take to list its tools. The tools of a slower one are found the next time.
const SERVER_PATIENCE: Duration = Duration::from_secs(5);

/// A found tool, local or not, in the form of the answer.
struct Told {
    score: f32,
    id: String,
    value: Value,
}

/// The gateway's tools, if it could be queried.
#[derive(Default)]
struct Remote {
    /// The tools by intent; for a pattern or a name, one list.
    lists: Vec<Vec<Value>>,
    suggestions: Vec<Value>,
    /// Why its tools are missing.
    missing: Option<String>,
}

/// Finds tools that programs can call from here, best first.
///
/// # Errors
/// Returns `INVALID_REQUEST`, and what to write, for arguments that do not fit together.
pub(crate) async fn discover(
    app: &Arc<App>,
    request: DiscoverRequest,
    cancel: &CancellationToken,
) -> Result<Value, ErrorBody> {
    let (lookup, limit) = (request.lookup()?, request.limit()?);
    app.read_permissions()?;
    let permissions = app.permissions();
    let (remote, (here, not_started)) = tokio::join!(
        ask_gateway(app, &request, &lookup, limit, cancel),
        tools_here(app, &permissions, cancel)
    );
    let mut here = here;
    if remote.missing.is_some() {
        here.extend(kept_capabilities(app)?);
    }
    here.retain(|tool| why_refused(&permissions, &tool.id).is_none());
    let merge = Merge { app, permissions: &permissions, request: &request, limit };
    let none = Vec::new();
    let list = |at: usize| remote.lists.get(at).unwrap_or(&none);
    let mut answer = match &lookup {
        Lookup::Intent(intent) => json!({ "tools": merge.by_words(&here, intent, list(0)) }),
        Lookup::Intents(intents) => {
            let found = intents.iter().enumerate();
            render_by_intent(
                found
                    .map(|(at, intent)| (intent.clone(), merge.by_words(&here, intent, list(at))))
                    .collect(),
            )
        }
        Lookup::Pattern(pattern) => {
            let matcher = glob(pattern)?;
            let matches = |id: &ToolId| matcher.is_match(id.as_str());
            json!({ "tools": merge.by_name(&here, matches, list(0)) })
        }
        Lookup::Name(name) => {
            let matches = |id: &ToolId| id.as_str() == name || id.namespace() == name;
            let tools = merge.by_name(&here, matches, list(0));
            let mut answer = json!({ "tools": tools });
            if tools.is_empty() {
                answer["suggestions"] = merge.suggestions(&here, name, &remote.suggestions);
            }
            answer
        }
    };
    if !not_started.is_empty() {
        answer["not_started"] = json!(not_started);
    }
    if let Some(missing) = remote.missing {
        answer["missing"] = missing.into();
    }
    Ok(answer)
}

/// Lists this machine's own tools, and the servers whose tools are not known yet.
async fn tools_here(
    app: &Arc<App>,
    permissions: &Permissions,
    cancel: &CancellationToken,
) -> (Vec<FoundTool>, Vec<String>) {
    let mut found = Vec::new();
    for namespace in tools::namespaces().filter(|name| !app.is_configured_namespace(name)) {
        let descriptors = tools::descriptors(namespace).iter().cloned();
        found.extend(descriptors.filter_map(|tool| found_here(namespace, tool, Vec::new())));
    }
    let servers = app.configured_namespaces().map(|namespace| async move {
        // Nothing starts here that a call would not start without a question.
        let may_start = permissions.may_start(namespace);
        let listing = app.list_tools(namespace, may_start, cancel);
        let listed = tokio::time::timeout(SERVER_PATIENCE, listing).await;
        let tools = listed.ok().flatten().or_else(|| app.known_tools(namespace));
        (namespace, tools)
    });
    let mut not_started = Vec::new();
    for (namespace, tools) in join_all(servers).await {
        let native = tools::is_native(namespace).then(|| format!("`{namespace}` of `pml`"));
        let hides: Vec<String> = native.into_iter().collect();
        match tools {
            Some(tools) => found.extend(
                tools.iter().filter_map(|tool| found_here(namespace, tool.clone(), hides.clone())),
            ),
            None => not_started.push(namespace.to_owned()),
        }
    }
    (found, not_started)
}

fn found_here(
    namespace: &str,
    descriptor: ToolDescriptor,
    hides: Vec<String>,
) -> Option<FoundTool> {
    Some(FoundTool {
        // A tool whose name is no id cannot be called from a program.
        id: ToolId::new(namespace, &descriptor.name).ok()?,
        fqdn: None,
        kind: ToolUseType::Tool,
        routing: Routing::Client,
        read_only: false,
        wraps_value: false,
        score: 1.0,
        version: None,
        hides,
        descriptor,
    })
}

/// Lists the capabilities that ran here before, which run without the gateway too.
fn kept_capabilities(app: &App) -> Result<Vec<FoundTool>, ErrorBody> {
    let mut found: HashMap<ToolId, FoundTool> = HashMap::new();
    // The highest version comes last.
    for pinned in app.lockfile.all_capabilities()? {
        let Some(module) = crate::capabilities::kept(app.records(), pinned.integrity) else {
            continue;
        };
        let Some(descriptor) = module.descriptor() else { continue };
        let tool = FoundTool {
            id: module.id.clone(),
            fqdn: Some(module.name.to_string()),
            kind: ToolUseType::Capability,
            routing: Routing::Client,
            read_only: false,
            wraps_value: true,
            score: 1.0,
            version: None,
            hides: Vec::new(),
            descriptor,
        };
        found.insert(module.id, tool);
    }
    Ok(found.into_values().collect())
}

/// Puts what is here and what is there into one list.
struct Merge<'a> {
    app: &'a App,
    permissions: &'a Permissions,
    request: &'a DiscoverRequest,
    limit: usize,
}

impl Merge<'_> {
    fn by_words(&self, here: &[FoundTool], intent: &str, there: &[Value]) -> Vec<Value> {
        let intent = Intent::new(intent);
        let here = here.iter().map(|tool| tool.clone().scored(&intent)).collect();
        let mut found = self.both(here, there);
        ranking::rank(&mut found, |tool| tool.score, |tool| &tool.id);
        self.cut(found)
    }

    fn by_name(
        &self,
        here: &[FoundTool],
        matches: impl Fn(&ToolId) -> bool,
        there: &[Value],
    ) -> Vec<Value> {
        let here = here.iter().filter(|tool| matches(&tool.id)).cloned().collect();
        let mut found = self.both(here, there);
        found.sort_by(|a, b| a.id.cmp(&b.id));
        self.cut(found)
    }

    fn suggestions(&self, here: &[FoundTool], name: &str, there: &[Value]) -> Value {
        let intent = Intent::new(name);
        let own = here.iter().map(|tool| tool.clone().scored(&intent));
        let mut own: Vec<FoundTool> = own.collect();
        ranking::rank(&mut own, |tool| tool.score, |tool| tool.id.as_str());
        let own = own.into_iter().map(|tool| tool.id);
        let there = there.iter().filter_map(|id| id.as_str()?.parse::<ToolId>().ok());
        let there = there.filter(|id| self.callable_there(id));
        let near = own.chain(there).map(|id| id.to_string()).collect();
        json!(ranking::nearest(name, near, SUGGESTIONS))
    }

    /// Returns whether a call of the gateway's tool reaches it: no server of the user and no rule is in the way.
    fn callable_there(&self, id: &ToolId) -> bool {
        !self.app.is_configured(id)
            && !tools::is_native(id.namespace())
            && why_refused(self.permissions, id).is_none()
    }

    fn both(&self, mut here: Vec<FoundTool>, there: &[Value]) -> Vec<Told> {
        let include = &self.request.include;
        let mut found = Vec::new();
        for value in there {
            let Some(id) = value["id"].as_str().and_then(|id| id.parse::<ToolId>().ok()) else {
                continue;
            };
            let score = value["score"].as_f64().unwrap_or_default() as f32;
            if let Some(own) = here.iter_mut().find(|own| own.id == id) {
                if own.fqdn.is_some() {
                    // It belongs to the gateway, and is stored here.
                    continue;
                }
                let fqdn = value["fqdn"].as_str().map(protocol::escape_text);
                own.hides.extend(fqdn);
            } else if self.callable_there(&id) {
                let (id, value) = (id.to_string(), told_there(value, include));
                found.push(Told { score, id, value });
            }
        }
        let filter: Option<&DiscoverFilter> = self.request.filter.as_ref();
        let own = here.into_iter().filter(|tool| tool.passes(filter)).map(|tool| Told {
            score: tool.score,
            id: tool.id.to_string(),
            value: tool.render(include),
        });
        found.extend(own);
        found
    }

    fn cut(&self, found: Vec<Told>) -> Vec<Value> {
        found.into_iter().take(self.limit).map(|tool| tool.value).collect()
    }
}

/// Reduces one of the gateway's tools to the requested fields; the gateway has sent all.
fn told_there(value: &Value, include: &[DiscoverInclude]) -> Value {
    let mut told = value.clone();
    if let Some(fields) = told.as_object_mut().filter(|_| include.is_empty()) {
        for field in ["fqdn", "input_schema", "output_schema"] {
            fields.shift_remove(field);
        }
        if let Some(Value::String(text)) = fields.get_mut("description") {
            *text = line_for_model(text, &mut TextFlags::default());
        }
    }
    told
}

/// Sends the gateway the same search, once for each intent. It requests all fields of a tool, because a tool that is
/// hidden here is shown by its full name.
async fn ask_gateway(
    app: &App,
    request: &DiscoverRequest,
    lookup: &Lookup,
    limit: usize,
    cancel: &CancellationToken,
) -> Remote {
    let question = |intent: Option<&String>| DiscoverRequest {
        intent: intent.cloned(),
        intents: None,
        include: vec![DiscoverInclude::Schemas],
        ..request.clone()
    };
    let questions = match lookup {
        Lookup::Intents(intents) => intents.iter().map(|intent| question(Some(intent))).collect(),
        _ => vec![question(request.intent.as_ref())],
    };
    let answers = join_all(questions.iter().map(|question| ask(app, question, cancel))).await;
    let mut remote = Remote::default();
    let (mut learned, mut offline) = (Vec::new(), false);
    for (question, answer) in questions.iter().zip(answers) {
        let lookup = question.intent.clone().map_or_else(|| lookup.clone(), Lookup::Intent);
        match answer {
            Ok(mut answer) => {
                if let Value::Array(suggestions) = answer["suggestions"].take() {
                    remote.suggestions = suggestions;
                }
                let tools = answer["tools"].take().as_array().cloned().unwrap_or_default();
                let complete = request.filter.is_none() && tools.len() < limit;
                learned.push(Answered { lookup, tools: tools.clone(), complete });
                remote.lists.push(tools);
            }
            Err(error) => {
                let remembered = Remembered::load(app).await;
                let found = |known: &Remembered| known.find(&lookup, request.filter.as_ref());
                let tools = remembered.as_ref().map(found).unwrap_or_default();
                remote.suggestions = remembered.as_ref().map(Remembered::ids).unwrap_or_default();
                offline |= !tools.is_empty();
                remote.missing = Some(format!("the gateway's tools: {}", error.message));
                remote.lists.push(tools);
            }
        }
    }
    if let Some(missing) = remote.missing.as_mut().filter(|_| offline) {
        missing.push_str("; those marked `offline` are from an earlier answer");
    }
    if !learned.is_empty() {
        Remembered::learn_later(app, learned).await;
    }
    remote
}

async fn ask(
    app: &App,
    question: &DiscoverRequest,
    cancel: &CancellationToken,
) -> Result<Value, ErrorBody> {
    let cloud = app.cloud()?;
    if !cloud.has_key().await {
        let message = format!("there is no API key for {}", cloud.gateway());
        return Err(ErrorBody::new(ErrorCode::Unauthorized, message));
    }
    let arguments = serde_json::to_value(question)
        .map_err(|error| ErrorBody::new(ErrorCode::Internal, error.to_string()))?;
    let asked = cloud.forward(meta_tools::DISCOVER.name, arguments, cancel);
    let mut result = tokio::time::timeout(GATEWAY_PATIENCE, asked).await.unwrap_or_else(|_| {
        let message = format!("{} did not answer within 10 s", cloud.gateway());
        Err(ErrorBody::new(ErrorCode::GatewayUnreachable, message))
    })?;
    let answer = result["structuredContent"].take();
    if result["isError"] == true || !answer["tools"].is_array() {
        let message = answer["message"].as_str().unwrap_or("its answer is invalid");
        return Err(ErrorBody::new(ErrorCode::GatewayBadAnswer, protocol::escape_text(message)));
    }
    Ok(answer)
}

/// Parses a pattern, in which `*` matches any text and nothing else is special.
fn glob(pattern: &str) -> Result<GlobMatcher, ErrorBody> {
    let escaped = pattern.split('*').map(globset::escape).collect::<Vec<_>>().join("*");
    let glob = GlobBuilder::new(&escaped).build().map_err(|error| {
        let message = format!("invalid `pattern`: {}", error.kind());
        ErrorBody::new(ErrorCode::InvalidRequest, message)
    })?;
    Ok(glob.compile_matcher())
}
