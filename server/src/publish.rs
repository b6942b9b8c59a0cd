//! Publishing a program as a capability, over HTTP or by `pml_create`.

pub(crate) mod create;
pub(crate) mod official;
pub(crate) mod servers;

use std::collections::BTreeMap;

use protocol::{
    EntryType, ErrorBody, ErrorCode, Fqdn, McpDependency, RoutingRules, Scope, ToolId, Visibility,
};
use registry::{
    Caller, EntryName, NewCapability, RegistryError, Resolved, Tenant, Version, VersionUpdate,
    contains_nul,
};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use utoipa::ToSchema;

use crate::error::{ApiError, registry_error};
use crate::execution::capabilities;
use crate::execution::refusal::why_missing;
use crate::state::SharedGateway;

/// The longest description, in characters.
const DESCRIPTION_LIMIT: usize = 4_000;
/// The longest deprecation message, in characters.
const REASON_LIMIT: usize = 1_000;
/// The largest schema, in bytes.
const SCHEMA_LIMIT: usize = 64 * 1024;

/// A request to publish.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Publish {
    /// The id for calls: `namespace:action` or, as in code, `namespace.action`.
    pub name: String,
    /// The program.
    pub code: String,
    /// Three numbers. Default: the next patch.
    #[schema(pattern = "^(0|[1-9][0-9]{0,8})\\.(0|[1-9][0-9]{0,8})\\.(0|[1-9][0-9]{0,8})$")]
    pub version: Option<String>,
    /// Visibility. Default: unchanged; `project` on first publish.
    pub visibility: Option<Visibility>,
    /// The description. Default: the program's doc comment.
    pub description: Option<String>,
    /// JSON Schema of its `args`. Default: derived from the program.
    #[schema(value_type = Option<Object>)]
    pub input_schema: Option<Map<String, Value>>,
}

/// The published entry.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Published)]
pub(crate) struct PublishedCapability {
    /// Its full name, pinned to its content.
    pub fqdn: String,
    /// Its version.
    pub version: String,
    /// The hash of its content.
    pub integrity: String,
    /// Where it currently runs.
    pub routing: &'static str,
    /// Its calls, sorted.
    pub calls: Vec<String>,
    /// Warnings for the publisher.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
    /// Whether this request created it; false if the identical version already existed.
    #[serde(skip)]
    #[schema(ignore)]
    pub new: bool,
    /// The path of this version.
    #[serde(skip)]
    #[schema(ignore)]
    pub location: String,
}

/// Publishes a program in the caller's scope. The caller of this function checks the right to publish.
///
/// # Errors
/// Returns the problem of the name, the program or its description, `CONFLICT` for a version with different bytes, and
/// the error of an unavailable registry.
pub(crate) async fn publish(
    gateway: &SharedGateway,
    caller: &Caller,
    body: Publish,
) -> Result<PublishedCapability, ErrorBody> {
    let id = parse_id(&body.name)?;
    let version = parse_version(body.version.as_deref())?;
    let given_schema = body.input_schema.map(parse_schema).transpose()?;
    // After the checks above, because only the analysis is expensive.
    let analysis = gateway.analyser.analyse(&body.code).await?;
    if let Some(error) = analysis.error_body() {
        return Err(error);
    }
    if analysis.dynamic {
        let detail = "the program is dynamic; a capability must declare all its tools";
        return Err(invalid(detail));
    }
    let description = match body.description {
        Some(description) => description,
        None => analysis::description(&body.code).ok_or_else(|| {
            invalid("the capability has no description: begin its program with a `/** … */` comment, or send `description`")
        })?,
    };
    let length = description.chars().count();
    // Postgres cannot store NUL characters.
    if description.trim().is_empty() || length > DESCRIPTION_LIMIT || description.contains('\0') {
        return Err(invalid(format!(
            "the description must have 1 to {DESCRIPTION_LIMIT} characters"
        )));
    }
    let tenant = caller.tenant();
    let base = capabilities::scope_of(&tenant);
    let (resolved, _) = capabilities::reach(gateway, &tenant, &base, &analysis.tools).await?;
    if !resolved.missing.is_empty() {
        let unknown: Vec<String> = resolved.missing.iter().map(why_missing).collect();
        return Err(invalid(format!(
            "the program uses tools that cannot be called: {}",
            unknown.join("; ")
        )));
    }
    let input_schema = given_schema.unwrap_or_else(|| {
        let schema_of = |id: &ToolId| resolved.get(id).map(|tool| &tool.descriptor.input_schema);
        let inferred = analysis.input_schema(schema_of);
        // A schema that is too large to store is replaced by the general one. It only describes the arguments; the
        // program accepts the same ones.
        if is_storable(&inferred) { inferred } else { json!({ "type": "object" }) }
    });
    let mcp_deps = dependencies(gateway, &tenant, &resolved).await?;
    // The routing at the time of publication. It is computed again for each program that calls the capability.
    let routing = RoutingRules::decide(false, resolved.tools.iter().map(|tool| tool.routing));
    let calls = analysis.tools.iter().map(ToolId::to_string).collect();
    let new = NewCapability {
        id: id.clone(),
        version,
        visibility: body.visibility,
        description,
        input_schema,
        code: body.code,
        calls: analysis.tools.clone(),
        mcp_deps,
        routing,
    };
    let published = gateway.registry.publish(&tenant, new).await.map_err(refused)?;
    let mut warnings = Vec::new();
    if published.hides_public {
        warnings.push(format!("in your scope, it hides the public `{id}`"));
    }
    Ok(PublishedCapability {
        location: format!("/mcp/{}@{}", published.fqdn.unpinned(), published.version),
        fqdn: published.fqdn.to_string(),
        version: published.version.to_string(),
        integrity: published.integrity.to_string(),
        routing: routing.as_str(),
        calls,
        warnings,
        new: published.new,
    })
}

/// Deprecates a version, or all versions, or clears the deprecation.
///
/// # Errors
/// Returns `NOT_FOUND` for a capability or a version that the caller's scope does not have.
pub(crate) async fn deprecate(
    gateway: &SharedGateway,
    caller: &Caller,
    name: &str,
    version: Option<&str>,
    message: Option<String>,
) -> Result<ToolId, ErrorBody> {
    update_version(gateway, caller, name, version, reason(message)?).await
}

/// Parses a deprecation message; without one, the deprecation is cleared.
fn reason(message: Option<String>) -> Result<VersionUpdate, ErrorBody> {
    match message {
        None => Ok(VersionUpdate::Undeprecate),
        Some(why)
            if why.trim().is_empty()
                || why.chars().count() > REASON_LIMIT
                || why.contains('\0') =>
        {
            Err(invalid(format!("`message` must have 1 to {REASON_LIMIT} characters")))
        }
        Some(why) => Ok(VersionUpdate::Deprecate(why)),
    }
}

/// Deletes a capability permanently. The caller has checked the right to publish.
///
/// # Errors
/// Returns `NOT_FOUND` for a name that the caller's scope does not have, `GONE` for a deleted one, and `FORBIDDEN` if
/// the caller neither published it first nor administers the project.
pub(crate) async fn delete(
    gateway: &SharedGateway,
    caller: &Caller,
    name: &str,
) -> Result<(), ApiError> {
    let id = parse_id(name).map_err(|_| ApiError::not_found())?;
    Ok(gateway.registry.delete_capability(caller, &id).await?)
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
) -> Result<ToolId, ErrorBody> {
    update_version(gateway, caller, name, Some(version), VersionUpdate::Yank).await
}

async fn update_version(
    gateway: &SharedGateway,
    caller: &Caller,
    name: &str,
    version: Option<&str>,
    update: VersionUpdate,
) -> Result<ToolId, ErrorBody> {
    // An invalid name is treated as an unknown one.
    let id = parse_id(name).map_err(|_| not_found())?;
    let version = parse_version(version)?;
    gateway
        .registry
        .update_version(&caller.tenant(), &id, version, update)
        .await
        .map_err(refused)?;
    Ok(id)
}

/// Returns the `stdio` servers whose tools the program itself calls, with their current version and content.
async fn dependencies(
    gateway: &SharedGateway,
    tenant: &Tenant,
    resolved: &Resolved,
) -> Result<Vec<McpDependency>, ErrorBody> {
    let stdio = resolved.tools.iter().filter(|tool| tool.kind == EntryType::Stdio);
    // With the scope, because servers of several scopes may have the same namespace.
    let mut found: BTreeMap<(&str, &Scope), McpDependency> = BTreeMap::new();
    for tool in stdio {
        let (namespace, scope) = (tool.id.namespace(), tool.fqdn.scope());
        if found.contains_key(&(namespace, scope)) {
            continue;
        }
        let server = Fqdn::server(scope.clone(), namespace)
            .map_err(|error| ErrorBody::new(ErrorCode::Internal, error.to_string()))?;
        let name = EntryName::Full(server);
        let entry = gateway
            .registry
            .entry(tenant, &name)
            .await
            .map_err(|error| match error {
                RegistryError::NotFound(_) | RegistryError::Gone(_) => {
                    invalid(format!("`{}` calls a server that is no longer registered", tool.id))
                }
                other => registry_error(&other),
            })?
            .entry;
        found.insert(
            (namespace, scope),
            McpDependency {
                name: namespace.to_owned(),
                fqdn: entry.fqdn,
                kind: EntryType::Stdio,
                version: entry.install.and_then(|install| install.version().map(str::to_owned)),
                integrity: entry.integrity,
            },
        );
    }
    Ok(found.into_values().collect())
}

fn parse_id(name: &str) -> Result<ToolId, ErrorBody> {
    // Only a plain id: the scope is that of the key, and the version is a separate field.
    let parsed = match name.split_once([':', '.']) {
        Some((namespace, action)) => ToolId::new(namespace, action),
        None => name.parse(),
    };
    parsed.map_err(|error| invalid(format!("`name`: {error}")))
}

fn parse_version(version: Option<&str>) -> Result<Option<Version>, ErrorBody> {
    let parsed: Option<Result<Version, RegistryError>> = version.map(str::parse);
    parsed.transpose().map_err(|error| invalid(format!("`version`: {error}")))
}

fn parse_schema(schema: Map<String, Value>) -> Result<Value, ErrorBody> {
    if schema.get("type") != Some(&json!("object")) {
        return Err(invalid("`input_schema` must describe an object: its `type` must be `object`"));
    }
    let schema = Value::Object(schema);
    if !is_storable(&schema) {
        return Err(invalid(format!(
            "`input_schema` must have at most {SCHEMA_LIMIT} bytes and no NUL characters"
        )));
    }
    Ok(schema)
}

fn is_storable(schema: &Value) -> bool {
    schema.to_string().len() <= SCHEMA_LIMIT && !contains_nul(schema)
}

fn invalid(detail: impl Into<String>) -> ErrorBody {
    ErrorBody::new(ErrorCode::InvalidRequest, detail)
}

fn not_found() -> ErrorBody {
    ErrorBody::new(ErrorCode::NotFound, crate::error::NOT_FOUND)
}

fn refused(error: RegistryError) -> ErrorBody {
    match error {
        RegistryError::Invalid(detail) => invalid(detail),
        RegistryError::Conflict(detail) => ErrorBody::new(ErrorCode::Conflict, detail),
        RegistryError::NotFound(_) => not_found(),
        RegistryError::Name(error) => invalid(format!("`name`: {error}")),
        RegistryError::Denied(_) => ErrorBody::new(
            ErrorCode::Forbidden,
            "publishing in this scope over HTTP is not allowed",
        ),
        other => registry_error(&other),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn schemas_with_nul_characters_are_refused() {
        for (schema, is_accepted) in [
            (json!({ "type": "object", "description": "Splits at \\u0000." }), true),
            (json!({ "type": "object", "pattern": "^[^\\u0000]+$" }), true),
            (json!({ "type": "object", "enum": [["a\u{0}"]] }), false),
            (json!({ "type": "object", "properties": { "a\u{0}": {} } }), false),
            (json!({ "type": "object", "description": "x".repeat(SCHEMA_LIMIT) }), false),
        ] {
            let Value::Object(fields) = schema else { unreachable!() };
            assert_eq!(parse_schema(fields.clone()).is_ok(), is_accepted, "{fields:?}");
        }
    }

    #[test]
    fn accepts_names_as_ids_and_as_in_code() {
        assert_eq!(parse_id("db:query").unwrap(), parse_id("db.query").unwrap());
        for name in ["", "db", "db.", "db.a.b", "db:a:b", "a.b:c", "../x:y", "a:b@1.0.0", "o.p.a:b"]
        {
            parse_id(name).expect_err(name);
        }
    }
}
