//! Publishing MCP servers: validates the author's description.

use protocol::server_json::{ServerPlace, place_of};
use protocol::{EntryType, ErrorBody, Install, ToolDescriptor, ToolId, Visibility};
use registry::{
    Caller, CatalogServer, CatalogTool, NewServer, SecretName, VersionUpdate, contains_nul,
};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use utoipa::ToSchema;

use super::{DESCRIPTION_LIMIT, invalid, is_storable, parse_version, reason, refused};
use crate::state::SharedGateway;

/// The maximum number of tools of one server.
const TOOLS: usize = 500;
/// The maximum number of arguments, of variables and of warnings.
const LIST: usize = 64;
/// The longest argument, address or warning, in bytes.
const TEXT: usize = 4 * 1024;
/// The largest server.json, in bytes.
pub(super) const SERVER_JSON_LIMIT: usize = 64 * 1024;
/// The message for too few and too many tools.
const TOOL_COUNT: &str = "a server must have 1 to 500 tools";

/// A request to publish.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct PublishServer {
    /// Its namespace: the name before the colon in its tools' ids.
    name: String,
    /// `stdio`, started on the user's machine, or `http`, called by the gateway.
    #[serde(rename = "type")]
    kind: ServerKind,
    /// The description.
    description: String,
    /// For `stdio`: how to start it.
    install: Option<Install>,
    /// For `http`: its address.
    proxy_to: Option<String>,
    /// For `http`: the variables of its secrets; the first is sent as `Authorization: Bearer`.
    #[serde(default)]
    env_required: Vec<String>,
    /// The server.json of the official registry that describes it; the official API returns it. The other fields must
    /// agree with it.
    #[schema(value_type = Option<Object>)]
    server_json: Option<Map<String, Value>>,
    /// Its tools, in the form of `tools/list`.
    #[schema(min_items = 1, max_items = 500)]
    tools: Vec<ToolDescriptor>,
    /// Warnings for users.
    #[serde(default)]
    warnings: Vec<String>,
    /// Three numbers. Default: the next patch.
    #[schema(pattern = "^(0|[1-9][0-9]{0,8})\\.(0|[1-9][0-9]{0,8})\\.(0|[1-9][0-9]{0,8})$")]
    version: Option<String>,
    /// Visibility. Default: unchanged; `project` on first publish.
    visibility: Option<Visibility>,
}

/// The types of servers that a tenant can publish.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
enum ServerKind {
    Stdio,
    #[serde(alias = "cloud")]
    Http,
}

/// The published entry.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = PublishedServer)]
pub(crate) struct PublishedServer {
    /// Its full name.
    fqdn: String,
    /// Its version.
    pub(super) version: String,
    /// The hash of its content.
    integrity: String,
    /// The routing of its tools.
    routing: &'static str,
    /// The ids of its tools, in their order.
    pub(super) tools: Vec<String>,
    /// Whether this request created it; false if the identical version already existed.
    #[serde(skip)]
    #[schema(ignore)]
    pub new: bool,
    /// The path of this version.
    #[serde(skip)]
    #[schema(ignore)]
    pub location: String,
}

/// Publishes a server in the caller's scope. The caller of this function checks the right to publish.
///
/// # Errors
/// Returns the problem of an invalid description, `CONFLICT` for a version with different content or a taken name, and
/// the error of an unavailable registry.
pub(crate) async fn publish(
    gateway: &SharedGateway,
    caller: &Caller,
    body: PublishServer,
) -> Result<PublishedServer, ErrorBody> {
    if body.tools.is_empty() {
        return Err(invalid(TOOL_COUNT));
    }
    publish_any(gateway, caller, body).await
}

/// Publishes a server, even without tools.
pub(super) async fn publish_any(
    gateway: &SharedGateway,
    caller: &Caller,
    body: PublishServer,
) -> Result<PublishedServer, ErrorBody> {
    let version = parse_version(body.version.as_deref())?;
    let visibility = body.visibility;
    // The address is checked again at each connection, because names can resolve to other addresses later.
    let server = parse(body, |url| gateway.upstreams.check(url).map(drop))?;
    let tools =
        server.tools.iter().map(|tool| format!("{}:{}", server.namespace, tool.descriptor.name));
    let tools = tools.collect();
    let new = NewServer { server, version, visibility };
    let published =
        gateway.registry.publish_server(&caller.tenant(), new).await.map_err(refused)?;
    Ok(PublishedServer {
        location: format!("/mcp/{}@{}", published.fqdn, published.version),
        fqdn: published.fqdn.to_string(),
        version: published.version.to_string(),
        integrity: published.integrity.to_string(),
        routing: published.routing.as_str(),
        tools,
        new: published.new,
    })
}

/// Deprecates a version, or all versions, or clears the deprecation.
///
/// # Errors
/// Returns `NOT_FOUND` for a server or a version that the caller's scope does not have.
pub(crate) async fn deprecate(
    gateway: &SharedGateway,
    caller: &Caller,
    name: &str,
    version: Option<&str>,
    message: Option<String>,
) -> Result<(), ErrorBody> {
    let (version, update) = (parse_version(version)?, reason(message)?);
    let tenant = caller.tenant();
    gateway.registry.update_server_version(&tenant, name, version, update).await.map_err(refused)
}

/// Yanks a version: only requests for exactly this version still resolve.
///
/// # Errors
/// As [`deprecate`].
pub(crate) async fn yank(
    gateway: &SharedGateway,
    caller: &Caller,
    name: &str,
    version: &str,
) -> Result<(), ErrorBody> {
    let version = parse_version(Some(version))?;
    let tenant = caller.tenant();
    gateway
        .registry
        .update_server_version(&tenant, name, version, VersionUpdate::Yank)
        .await
        .map_err(refused)
}

impl PublishServer {
    /// Creates a request from a server.json, for a namespace and the tools that the author listed.
    ///
    /// # Errors
    /// Returns an error if the server.json has neither a package that can be started nor a usable remote address.
    pub(super) fn of_server_json(
        namespace: &str,
        server: Map<String, Value>,
        tools: Vec<ToolDescriptor>,
    ) -> Result<Self, ErrorBody> {
        let server = Value::Object(server);
        let (kind, install, proxy_to, env_required) = match place_of(&server).map_err(invalid)? {
            ServerPlace::Stdio(install) => (ServerKind::Stdio, Some(install), None, Vec::new()),
            ServerPlace::Http { url, env_required } => {
                (ServerKind::Http, None, Some(url), env_required)
            }
        };
        let text = |field: &str| server[field].as_str().unwrap_or_default().to_owned();
        Ok(Self {
            name: namespace.to_owned(),
            kind,
            description: text("description"),
            install,
            proxy_to,
            env_required,
            version: Some(text("version")),
            server_json: match server {
                Value::Object(fields) => Some(fields),
                _ => None,
            },
            tools,
            warnings: Vec::new(),
            visibility: None,
        })
    }
}

/// Checks that a server.json in the request describes the same package or address as its other fields, so that the
/// official API shows what actually runs.
fn check_server_json(body: &PublishServer) -> Result<Option<Value>, ErrorBody> {
    let Some(server) = body.server_json.clone().map(Value::Object) else { return Ok(None) };
    let bytes = server.to_string().len();
    if bytes > SERVER_JSON_LIMIT {
        let detail = format!("`server_json` has {bytes} bytes; at most {SERVER_JSON_LIMIT}");
        return Err(invalid(detail));
    }
    let place = place_of(&server).map_err(|why| invalid(format!("`server_json`: {why}")))?;
    let agrees = match place {
        ServerPlace::Stdio(install) => body.install.as_ref() == Some(&install),
        ServerPlace::Http { url, env_required } => {
            body.proxy_to.as_ref() == Some(&url) && body.env_required == env_required
        }
    };
    if !agrees {
        let detail = "`server_json` describes a different package or address than `install`, `proxy_to` and `env_required`";
        return Err(invalid(detail));
    }
    Ok(Some(server))
}

/// Validates an author's description of a server; `check` validates the address.
fn parse(
    body: PublishServer,
    check: impl Fn(&str) -> Result<(), String>,
) -> Result<CatalogServer, ErrorBody> {
    let length = body.description.chars().count();
    if body.description.trim().is_empty() || length > DESCRIPTION_LIMIT {
        return Err(invalid(format!(
            "`description` must have 1 to {DESCRIPTION_LIMIT} characters"
        )));
    }
    texts("warnings", &body.warnings, TEXT)?;
    let server_json = check_server_json(&body)?;
    let (kind, install, proxy_to) = match (body.kind, body.install, body.proxy_to) {
        (ServerKind::Stdio, Some(install), None) => {
            if !body.env_required.is_empty() {
                let detail = "the variables of a `stdio` server belong in `install.env_required`";
                return Err(invalid(detail));
            }
            check_install(&install)?;
            (EntryType::Stdio, Some(install), None)
        }
        (ServerKind::Http, None, Some(url)) => {
            texts("proxy_to", std::slice::from_ref(&url), TEXT)?;
            check(&url).map_err(|why| invalid(format!("`proxy_to`: {why}")))?;
            for name in &body.env_required {
                name.parse::<SecretName>()
                    .map_err(|error| invalid(format!("`env_required`: {error}")))?;
            }
            (EntryType::Http, None, Some(url))
        }
        (ServerKind::Stdio, ..) => {
            return Err(invalid("a `stdio` server needs `install`, and cannot have `proxy_to`"));
        }
        (ServerKind::Http, ..) => {
            return Err(invalid("an `http` server needs `proxy_to`, and cannot have `install`"));
        }
    };
    if body.env_required.len() > LIST {
        return Err(invalid(format!("`env_required` can have at most {LIST} names")));
    }
    let tools = check_any_tools(&body.name, body.tools)?;
    let server = CatalogServer {
        namespace: body.name,
        kind,
        description: body.description,
        install,
        proxy_to,
        env_required: body.env_required,
        routing: None,
        warnings: body.warnings,
        result: protocol::ResultMode::default(),
        server_json,
        tools,
    };
    if contains_nul(&json!(server)) {
        return Err(invalid("the entry contains a NUL character"));
    }
    Ok(server)
}

fn check_install(install: &Install) -> Result<(), ErrorBody> {
    texts("install.command", std::slice::from_ref(&install.command), TEXT)?;
    texts("install.args", &install.args, TEXT)?;
    if install.command.trim().is_empty() {
        return Err(invalid("`install.command` is empty"));
    }
    let is_variable = |name: &String| {
        let allowed = |b: u8| b.is_ascii_alphanumeric() || b == b'_';
        (1..=128).contains(&name.len())
            && !name.as_bytes()[0].is_ascii_digit()
            && name.bytes().all(allowed)
    };
    let names_of_env: Vec<String> = install.env.keys().cloned().collect();
    if names_of_env.len() > LIST || !names_of_env.iter().all(is_variable) {
        return Err(invalid(format!(
            "`install.env` must be an object with at most {LIST} variables and their values"
        )));
    }
    let has_reference =
        |text: &String| text.replace("${workspace}", "").replace("${home}", "").contains("${");
    if install.env.values().any(has_reference) {
        return Err(invalid(
            "a value in `install.env` may refer to `${workspace}` and `${home}` only; name other variables in `install.env_required`",
        ));
    }
    texts("install.env", &install.env.values().cloned().collect::<Vec<_>>(), TEXT)?;
    // What exactly a pattern of hosts is, `pml` decides before it starts the server.
    let is_host = |text: &String| {
        (1..=260).contains(&text.len())
            && text.chars().all(|c| c.is_alphanumeric() || ".-_*:[]".contains(c))
    };
    if install.network.len() > LIST || !install.network.iter().all(is_host) {
        return Err(invalid(format!(
            "`install.network` must be a list of at most {LIST} hosts, such as `api.example.com` or `*.example.com`"
        )));
    }
    if install.env_required.len() > LIST || !install.env_required.iter().all(is_variable) {
        return Err(invalid(format!(
            "`install.env_required` must be a list of at most {LIST} names of variables"
        )));
    }
    Ok(())
}

/// Validates the descriptions of a server's tools.
///
/// # Errors
/// Returns `INVALID_REQUEST` for an invalid description, and for too many tools or none.
pub(crate) fn check_tools(
    namespace: &str,
    tools: Vec<ToolDescriptor>,
) -> Result<Vec<CatalogTool>, ErrorBody> {
    if tools.is_empty() {
        return Err(invalid(TOOL_COUNT));
    }
    check_any_tools(namespace, tools)
}

fn check_any_tools(
    namespace: &str,
    tools: Vec<ToolDescriptor>,
) -> Result<Vec<CatalogTool>, ErrorBody> {
    if tools.len() > TOOLS {
        return Err(invalid(TOOL_COUNT));
    }
    tools.into_iter().map(|tool| check_tool(namespace, tool)).collect()
}

fn check_tool(namespace: &str, tool: ToolDescriptor) -> Result<CatalogTool, ErrorBody> {
    let id =
        ToolId::new(namespace, &tool.name).map_err(|error| invalid(format!("`tools`: {error}")))?;
    // MCP requires this type of `inputSchema`.
    let is_object = |schema: &Value| schema.get("type") == Some(&json!("object"));
    if !is_object(&tool.input_schema) || !is_storable(&tool.input_schema) {
        return Err(invalid(format!(
            "`{id}`: `inputSchema` must describe an object, in at most 64 KiB without NUL characters"
        )));
    }
    let others = [&tool.output_schema, &tool.annotations];
    if others.into_iter().flatten().any(|value| !value.is_object() || !is_storable(value)) {
        return Err(invalid(format!(
            "`{id}`: `outputSchema` and `annotations` must be objects of at most 64 KiB without NUL characters"
        )));
    }
    if tool.description.chars().count() > DESCRIPTION_LIMIT {
        return Err(invalid(format!(
            "`{id}`: the description can have at most {DESCRIPTION_LIMIT} characters"
        )));
    }
    // Only the operator sets these two.
    Ok(CatalogTool { descriptor: tool, read_only: false, deterministic: false })
}

fn texts(what: &str, texts: &[String], longest: usize) -> Result<(), ErrorBody> {
    if texts.len() > LIST || texts.iter().any(|text| text.len() > longest) {
        return Err(invalid(format!("`{what}`: at most {LIST} texts of {longest} bytes each")));
    }
    Ok(())
}
