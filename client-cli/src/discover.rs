//! `pml_discover` and `mcp.pml.search_tools` on the user's machine: finds tools that can be called from here.
//!
//! The tools of the user's own MCP servers, those built into `pml`, those of the gateway and those that the user has allowed
//! of other registries are ranked in one list. If
//! the gateway is unreachable, its earlier answers are used, and the answer states what is missing.

mod elsewhere;
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
use protocol::{ErrorBody, ErrorCode, Routing, ToolDescriptor, ToolId, ToolUseType};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use self::elsewhere::FromRegistries;
use self::remembered::{Answered, Remembered};
use crate::app::App;
use crate::consent::decision::why_refused;
use crate::consent::permissions::Permissions;
use crate::consent::shortened::shortened;
use crate::origin::Origin;
use crate::tools;

/// The time limit of the gateway's answer; local results need not wait for it.
const GATEWAY_TIMEOUT: Duration = Duration::from_secs(10);
/// The time limit of a server for listing its tools. The tools of a slower server are found the next time.
const SERVER_TIMEOUT: Duration = Duration::from_secs(5);

/// The maximum length of a reason in characters.
const REASON_LIMIT: usize = 600;

/// A found tool in the form of the answer.
struct Found {
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
/// Returns `INVALID_REQUEST` for invalid arguments.
pub(crate) async fn discover(
    app: &Arc<App>,
    request: DiscoverRequest,
    cancel: &CancellationToken,
) -> Result<Value, ErrorBody> {
    let (lookup, limit) = (request.lookup()?, request.limit()?);
    // The user may have edited the rules since the last search.
    app.read_permissions()?;
    let permissions = app.permissions();
    let mut elsewhere = FromRegistries::allowed(app)?;
    let mut not_searched = Unknown::default();
    // First: the gateway is not asked about a name that a registry before it has.
    let is_elsewhere = elsewhere.look(app, &lookup, false, &mut not_searched).await;
    let (remote, (local_tools, mut unknown)) = tokio::join!(
        async {
            match is_elsewhere {
                true => Remote::default(),
                false => ask_gateway(app, &request, &lookup, limit, cancel).await,
            }
        },
        list_local_tools(app, &permissions, cancel)
    );
    let mut local_tools = local_tools;
    if !is_elsewhere {
        elsewhere.without(app, &remote.lists);
        if remote.missing.is_none() && remote.lists.iter().all(Vec::is_empty) {
            elsewhere.look(app, &lookup, true, &mut not_searched).await;
        }
    }
    unknown.not_listed.extend(not_searched.not_listed);
    // Its own servers come first, whatever a registry has.
    elsewhere.tools.retain(|tool| !app.is_local(&tool.id));
    let FromRegistries { tools, origins } = elsewhere;
    local_tools.extend(tools);
    if remote.missing.is_some() {
        // The gateway's answer would contain these; without it, they are listed because they run offline.
        local_tools.extend(stored_capabilities(app)?);
    }
    local_tools.retain(|tool| why_refused(&permissions, &tool.id).is_none());
    let merge =
        Merge { app, permissions: &permissions, request: &request, limit, origins: &origins };
    let none = Vec::new();
    let list = |at: usize| remote.lists.get(at).unwrap_or(&none);
    let mut answer = match &lookup {
        Lookup::Intent(intent) => json!({ "tools": merge.by_words(&local_tools, intent, list(0)) }),
        Lookup::Intents(intents) => {
            let found = intents.iter().enumerate();
            render_by_intent(
                found
                    .map(|(at, intent)| {
                        (intent.clone(), merge.by_words(&local_tools, intent, list(at)))
                    })
                    .collect(),
            )
        }
        Lookup::Pattern(pattern) => {
            let matcher = glob(pattern)?;
            let matches = |id: &ToolId| matcher.is_match(id.as_str());
            json!({ "tools": merge.by_name(&local_tools, matches, list(0)) })
        }
        Lookup::Name(name) => {
            let matches = |id: &ToolId| id.as_str() == name || id.namespace() == name;
            let tools = merge.by_name(&local_tools, matches, list(0));
            let mut answer = json!({ "tools": tools });
            if tools.is_empty() {
                answer["suggestions"] = merge.suggestions(&local_tools, name, &remote.suggestions);
            }
            answer
        }
    };
    if !unknown.not_started.is_empty() {
        answer["not_started"] = json!(unknown.not_started);
    }
    if !unknown.not_listed.is_empty() {
        answer["not_listed"] = json!(unknown.not_listed);
    }
    if let Some(missing) = remote.missing {
        answer["missing"] = missing.into();
    }
    Ok(answer)
}

/// The servers whose tools are not known.
#[derive(Default)]
struct Unknown {
    /// They have not run yet.
    not_started: Vec<String>,
    /// They were asked and gave no list: each with the reason.
    not_listed: Vec<Value>,
}

/// Lists this machine's own tools, and the servers whose tools are not known.
async fn list_local_tools(
    app: &Arc<App>,
    permissions: &Permissions,
    cancel: &CancellationToken,
) -> (Vec<FoundTool>, Unknown) {
    let mut found = Vec::new();
    // A configured server replaces the whole built-in namespace, not only the tools that it has.
    for namespace in tools::namespaces().filter(|name| !app.is_configured_namespace(name)) {
        let descriptors = tools::descriptors(namespace).iter().cloned();
        found.extend(descriptors.filter_map(|tool| local_tool(namespace, tool, Vec::new())));
    }
    let servers = app.configured_namespaces().map(|namespace| async move {
        // A search may start a server only if a call could start it without asking the user.
        let may_start = permissions.may_start(namespace);
        let listing = app.list_tools(namespace, may_start, cancel);
        // The start itself is not cancelled by the time limit, so the next search finds these
        // tools.
        let listed = tokio::time::timeout(SERVER_TIMEOUT, listing).await;
        let listed = match listed {
            Ok(listed) => listed.map_err(|error| error.to_string()),
            Err(_) => Err(format!("it did not answer within {} s", SERVER_TIMEOUT.as_secs())),
        };
        match listed {
            Ok(Some(tools)) => (namespace, Ok(Some(tools))),
            other => match app.known_tools(namespace) {
                Some(known) => (namespace, Ok(Some(known))),
                None => (namespace, other),
            },
        }
    });
    let mut unknown = Unknown::default();
    for (namespace, tools) in join_all(servers).await {
        let native = tools::is_native(namespace).then(|| format!("`{namespace}` of `pml`"));
        let hides: Vec<String> = native.into_iter().collect();
        match tools {
            Ok(Some(tools)) => found.extend(
                tools.iter().filter_map(|tool| local_tool(namespace, tool.clone(), hides.clone())),
            ),
            Ok(None) => unknown.not_started.push(namespace.to_owned()),
            Err(reason) => unknown.not_listed.push(json!({
                "server": namespace,
                // It may quote what the server wrote.
                "reason": shortened(&reason, REASON_LIMIT),
            })),
        }
    }
    (found, unknown)
}

fn local_tool(
    namespace: &str,
    descriptor: ToolDescriptor,
    hides: Vec<String>,
) -> Option<FoundTool> {
    Some(FoundTool {
        // A tool whose name is not a valid id cannot be called from a program.
        id: ToolId::new(namespace, &descriptor.name).ok()?,
        fqdn: None,
        kind: ToolUseType::Tool,
        routing: Routing::Client,
        // Hints of a server about its own tools are not trusted; only an operator marks tools.
        read_only: false,
        wraps_value: false,
        score: 1.0,
        version: None,
        hides,
        own_machine: false,
        descriptor,
    })
}

/// Lists the capabilities that ran here before, which run without the gateway too.
fn stored_capabilities(app: &App) -> Result<Vec<FoundTool>, ErrorBody> {
    let mut found: HashMap<ToolId, FoundTool> = HashMap::new();
    // The highest version comes last.
    for pinned in app.lockfile.all_capabilities()? {
        // A program that is missing or does not match its hash cannot run without the gateway.
        let Some(module) = crate::capabilities::load_module(app.records(), pinned.integrity) else {
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
            own_machine: false,
            descriptor,
        };
        found.insert(module.id, tool);
    }
    Ok(found.into_values().collect())
}

/// Merges local tools and those of the gateway into one list.
struct Merge<'a> {
    app: &'a App,
    permissions: &'a Permissions,
    request: &'a DiscoverRequest,
    limit: usize,
    /// The registries of tools that come from another one than the gateway.
    origins: &'a HashMap<ToolId, Origin>,
}

impl Merge<'_> {
    fn by_words(
        &self,
        local_tools: &[FoundTool],
        intent: &str,
        remote_tools: &[Value],
    ) -> Vec<Value> {
        let intent = Intent::new(intent);
        let local_tools = local_tools.iter().map(|tool| tool.clone().scored(&intent)).collect();
        let mut found = self.merged(local_tools, remote_tools);
        // Both sides are ranked in one list: a score depends only on the tool and the intent, so
        // the scores are comparable.
        ranking::rank(&mut found, |tool| tool.score, |tool| &tool.id);
        self.cut(found)
    }

    fn by_name(
        &self,
        local_tools: &[FoundTool],
        matches: impl Fn(&ToolId) -> bool,
        remote_tools: &[Value],
    ) -> Vec<Value> {
        let local_tools = local_tools.iter().filter(|tool| matches(&tool.id)).cloned().collect();
        let mut found = self.merged(local_tools, remote_tools);
        found.sort_by(|a, b| a.id.cmp(&b.id));
        self.cut(found)
    }

    fn suggestions(&self, local_tools: &[FoundTool], name: &str, remote_tools: &[Value]) -> Value {
        let intent = Intent::new(name);
        let own = local_tools.iter().map(|tool| tool.clone().scored(&intent));
        let mut own: Vec<FoundTool> = own.collect();
        ranking::rank(&mut own, |tool| tool.score, |tool| tool.id.as_str());
        let own = own.into_iter().map(|tool| tool.id);
        // Parsed, so that nothing but valid names of a gateway reaches the agent here.
        let remote_tools = remote_tools.iter().filter_map(|id| id.as_str()?.parse::<ToolId>().ok());
        let remote_tools = remote_tools.filter(|id| self.is_callable_on_gateway(id));
        let near = own.chain(remote_tools).map(|id| id.to_string()).collect();
        json!(ranking::nearest(name, near, SUGGESTIONS))
    }

    /// Returns whether a call would reach the gateway's tool: it is not hidden by a server of the user, and not denied.
    fn is_callable_on_gateway(&self, id: &ToolId) -> bool {
        !self.app.is_configured(id)
            && !tools::is_native(id.namespace())
            && why_refused(self.permissions, id).is_none()
    }

    fn merged(&self, mut local_tools: Vec<FoundTool>, remote_tools: &[Value]) -> Vec<Found> {
        let include = &self.request.include;
        let mut found = Vec::new();
        for value in remote_tools {
            let Some(id) = value["id"].as_str().and_then(|id| id.parse::<ToolId>().ok()) else {
                continue;
            };
            let score = value["score"].as_f64().unwrap_or_default() as f32;
            if let Some(own) = local_tools.iter_mut().find(|own| own.id == id) {
                if own.fqdn.is_some() && !self.origins.contains_key(&id) {
                    // The same capability, which is also stored here.
                    continue;
                }
                let fqdn = value["fqdn"].as_str().map(protocol::escape_text);
                own.hides.extend(fqdn);
            } else if self.is_callable_on_gateway(&id) {
                let (id, value) = (id.to_string(), reduced(value, include));
                found.push(Found { score, id, value });
            }
        }
        // The list of the gateway is filtered already: its question contained the filter.
        let filter: Option<&DiscoverFilter> = self.request.filter.as_ref();
        let own = local_tools.into_iter().filter(|tool| tool.passes(filter)).map(|tool| Found {
            score: tool.score,
            id: tool.id.to_string(),
            value: self.rendered(&tool, include),
        });
        found.extend(own);
        found
    }

    /// Renders a tool of this machine, with the registry that it comes from.
    fn rendered(&self, tool: &FoundTool, include: &[DiscoverInclude]) -> Value {
        let mut value = tool.render(include);
        if let Some(origin) = self.origins.get(&tool.id) {
            value["registry"] = json!(origin);
        }
        value
    }

    fn cut(&self, found: Vec<Found>) -> Vec<Value> {
        found.into_iter().take(self.limit).map(|tool| tool.value).collect()
    }
}

/// Reduces one of the gateway's tools, which has all fields, to the requested ones.
fn reduced(value: &Value, include: &[DiscoverInclude]) -> Value {
    let mut reduced = value.clone();
    if let Some(fields) = reduced.as_object_mut() {
        // Only `pml` says that a tool is of another registry.
        fields.shift_remove("registry");
    }
    if let Some(fields) = reduced.as_object_mut().filter(|_| include.is_empty()) {
        for field in ["fqdn", "input_schema", "output_schema"] {
            // `remove` would move the last field into the gap.
            fields.shift_remove(field);
        }
        if let Some(Value::String(text)) = fields.get_mut("description") {
            *text = line_for_model(text, &mut TextFlags::default());
        }
    }
    reduced
}

/// Sends the same search to the gateway, once for each intent. Requests all fields, because the answer shows the full
/// names of hidden tools.
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
    // One request for each intent: in an answer to several intents, a repeated tool has only its id
    // and its score.
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
                // A filtered answer omits tools that exist, and a full one may have been cut at the
                // limit.
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
    // The gateway would reject the request, so the words of the search stay here.
    if !cloud.has_key().await {
        let message = format!("there is no API key for {}", cloud.gateway());
        return Err(ErrorBody::new(ErrorCode::Unauthorized, message));
    }
    let arguments = serde_json::to_value(question)
        .map_err(|error| ErrorBody::new(ErrorCode::Internal, error.to_string()))?;
    let asked = cloud.discover(arguments, cancel);
    // The limit of `Cloud` itself also covers runs of programs, and is too long for a search.
    let mut result = tokio::time::timeout(GATEWAY_TIMEOUT, asked).await.unwrap_or_else(|_| {
        let seconds = GATEWAY_TIMEOUT.as_secs();
        let message = format!("{} did not answer within {seconds} s", cloud.gateway());
        Err(ErrorBody::new(ErrorCode::GatewayUnreachable, message))
    })?;
    // The client has checked that the result is an object. On any other value, a mutable index
    // panics.
    let answer = result["structuredContent"].take();
    // This also ensures that the answer is an object, which `ask_gateway` indexes mutably.
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
