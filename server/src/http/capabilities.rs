//! `/api/v1/capabilities`: programs published under a name.

use std::sync::Arc;

use axum::extract::{Path, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use protocol::{ErrorCode, RoutingRules, ToolId, Visibility};
use registry::{Caller, NewCapability, RegistryError, Remark, Right, Version};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use utoipa::ToSchema;

use super::body::ApiJson;
use super::openapi::Problem;
use crate::capabilities;
use crate::error::ApiError;
use crate::state::SharedGateway;

/// The longest description, in characters.
const DESCRIPTION_LIMIT: usize = 4_000;
/// The longest reason for not using a version any more, in characters.
const REASON_LIMIT: usize = 1_000;
/// The largest schema, in bytes.
const SCHEMA_LIMIT: usize = 64 * 1024;

/// What is to be published.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Publish {
    /// The id under which programs call it: `namespace:action`, or as in code, `namespace.action`.
    name: String,
    /// The program.
    code: String,
    /// Three numbers; without them, the next patch.
    version: Option<String>,
    /// Who may know of it; without it, as before, and first the project.
    visibility: Option<Visibility>,
    /// What it does; without it, what the program's doc comment says.
    description: Option<String>,
    /// JSON Schema of its `args`.
    #[schema(value_type = Option<Object>)]
    input_schema: Option<Map<String, Value>>,
}

/// What was published.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Published)]
struct Made {
    fqdn: String,
    version: String,
    integrity: String,
    routing: &'static str,
    calls: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    warnings: Vec<String>,
}

/// Says that a version should not be used any more, or again may.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Deprecate {
    /// Which one; without it, all.
    version: Option<String>,
    /// Why; `null` takes it back.
    message: Option<String>,
}

/// Takes a version out of what is found without naming it.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Yank {
    /// Which one.
    version: String,
}

/// What was spoken of.
#[derive(Debug, Serialize, ToSchema)]
struct Named {
    name: String,
}

/// Publishes a program as a capability.
#[utoipa::path(post, path = "/api/v1/capabilities", tag = "capabilities",
    request_body(content = Publish, example = json!({ "name": "text:shout", "code": "/** Returns a text in capitals. */ return args.text.toUpperCase()" })),
    responses(
        (status = 201, description = "It was published", body = Made),
        (status = 200, description = "The same version with the same bytes was there", body = Made),
        (status = 409, description = "The version is there with other bytes, or the name is taken", body = Problem, content_type = "application/problem+json"),
        (status = 422, description = "The program cannot be a capability", body = Problem, content_type = "application/problem+json")))]
pub async fn publish_capability(
    State(gateway): State<SharedGateway>,
    Extension(caller): Extension<Arc<Caller>>,
    ApiJson(body): ApiJson<Publish>,
) -> Result<Response, ApiError> {
    require_publish(&caller)?;
    let id = parse_id(&body.name)?;
    let version = parse_version(body.version.as_deref())?;
    let input_schema = parse_schema(body.input_schema)?;
    let analysis = gateway.analyser.analyse(&body.code).await.map_err(told)?;
    if let Some(error) = analysis.error_body() {
        return Err(told(error));
    }
    if analysis.dynamic {
        let detail = "the program chooses its tools as it runs; a capability names all of them";
        return Err(invalid(detail));
    }
    let description = match body.description {
        Some(description) => description,
        None => doc_comment(&body.code).ok_or_else(|| {
            invalid("the capability says nowhere what it does: begin its program with a `/** … */` comment, or send `description`")
        })?,
    };
    let length = description.chars().count();
    if description.trim().is_empty() || length > DESCRIPTION_LIMIT || description.contains('\0') {
        return Err(invalid(format!("the description has 1 to {DESCRIPTION_LIMIT} characters")));
    }
    let tenant = caller.tenant();
    let (resolved, _) =
        capabilities::reach(&gateway, &tenant, &analysis.tools).await.map_err(told)?;
    if !resolved.missing.is_empty() {
        let unknown: Vec<String> =
            resolved.missing.iter().map(|missing| format!("`{}`", missing.id)).collect();
        return Err(invalid(format!("it calls what is not registered: {}", unknown.join(", "))));
    }
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
        routing,
    };
    let published = gateway.registry.publish(&tenant, new).await.map_err(refused)?;
    let mut warnings = Vec::new();
    if published.hides_public {
        warnings.push(format!("in your scope it stands before the public `{id}`"));
    }
    let made = Made {
        fqdn: published.fqdn.to_string(),
        version: published.version.to_string(),
        integrity: published.integrity.to_string(),
        routing: routing.as_str(),
        calls,
        warnings,
    };
    let status = if published.new { StatusCode::CREATED } else { StatusCode::OK };
    let place = format!("/mcp/{}@{}", published.fqdn.unpinned(), published.version);
    Ok((status, [(header::LOCATION, place)], private(Json(made))).into_response())
}

/// Says of a version, or of all, that it should not be used any more.
#[utoipa::path(post, path = "/api/v1/capabilities/{name}/deprecate", tag = "capabilities",
    params(("name" = String, Path, description = "Its id", example = "text:shout")),
    request_body(content = Deprecate, example = json!({ "version": "0.1.0", "message": "use text:upper" })),
    responses((status = 200, description = "It is said", body = Named)))]
pub async fn deprecate_capability(
    State(gateway): State<SharedGateway>,
    Extension(caller): Extension<Arc<Caller>>,
    Path(name): Path<String>,
    ApiJson(body): ApiJson<Deprecate>,
) -> Result<Response, ApiError> {
    let remark = match body.message {
        None => Remark::NotDeprecated,
        Some(why) if why.trim().is_empty() || why.chars().count() > REASON_LIMIT => {
            return Err(invalid(format!("`message` has 1 to {REASON_LIMIT} characters")));
        }
        Some(why) => Remark::Deprecated(why),
    };
    say(&gateway, &caller, &name, body.version.as_deref(), remark).await
}

/// Leaves a version to those who name it.
#[utoipa::path(post, path = "/api/v1/capabilities/{name}/yank", tag = "capabilities",
    params(("name" = String, Path, description = "Its id", example = "text:shout")),
    request_body(content = Yank, example = json!({ "version": "0.1.0" })),
    responses((status = 200, description = "It is done", body = Named)))]
pub async fn yank_capability(
    State(gateway): State<SharedGateway>,
    Extension(caller): Extension<Arc<Caller>>,
    Path(name): Path<String>,
    ApiJson(body): ApiJson<Yank>,
) -> Result<Response, ApiError> {
    say(&gateway, &caller, &name, Some(&body.version), Remark::Yanked).await
}

async fn say(
    gateway: &SharedGateway,
    caller: &Caller,
    name: &str,
    version: Option<&str>,
    remark: Remark,
) -> Result<Response, ApiError> {
    require_publish(caller)?;
    // What is no name is nobody's.
    let id = parse_id(name).map_err(|_| ApiError::not_found())?;
    let version = parse_version(version)?;
    gateway.registry.remark(&caller.tenant(), &id, version, remark).await.map_err(refused)?;
    Ok(private(Json(Named { name: id.to_string() })))
}

fn require_publish(caller: &Caller) -> Result<(), ApiError> {
    if caller.rights.contains(Right::Publish) {
        return Ok(());
    }
    Err(ApiError::lacks(Right::Publish))
}

fn parse_id(name: &str) -> Result<ToolId, ApiError> {
    let parsed = match name.split_once('.') {
        Some((namespace, action)) if !name.contains(':') => ToolId::new(namespace, action),
        _ => name.parse(),
    };
    parsed.map_err(|error| invalid(format!("`name`: {error}")))
}

fn parse_version(version: Option<&str>) -> Result<Option<Version>, ApiError> {
    let parsed: Option<Result<Version, RegistryError>> = version.map(str::parse);
    parsed.transpose().map_err(|error| invalid(format!("`version`: {error}")))
}

fn parse_schema(schema: Option<Map<String, Value>>) -> Result<Value, ApiError> {
    let schema = schema.unwrap_or_else(|| Map::from_iter([("type".to_owned(), json!("object"))]));
    if schema.get("type") != Some(&json!("object")) {
        return Err(invalid("`input_schema` describes an object: its `type` is `object`"));
    }
    let schema = Value::Object(schema);
    let bytes = schema.to_string().len();
    if bytes > SCHEMA_LIMIT || schema.to_string().contains("\\u0000") {
        return Err(invalid(format!("`input_schema` has {bytes} bytes; at most {SCHEMA_LIMIT}")));
    }
    Ok(schema)
}

/// Returns the text of the comment with which a program begins, if it begins with a doc comment.
fn doc_comment(code: &str) -> Option<String> {
    let (comment, _) = code.trim_start().strip_prefix("/**")?.split_once("*/")?;
    let lines = comment.lines().map(|line| {
        let line = line.trim();
        line.strip_prefix('*').map_or(line, str::trim)
    });
    // What follows the first tag is for tools.
    let text: Vec<&str> = lines.take_while(|line| !line.starts_with('@')).collect();
    let text = text.join("\n").trim().to_owned();
    (!text.is_empty()).then_some(text)
}

fn private(body: impl IntoResponse) -> Response {
    ([(header::CACHE_CONTROL, "private, no-store")], body).into_response()
}

fn invalid(detail: impl Into<String>) -> ApiError {
    ApiError::new(ErrorCode::InvalidRequest, detail)
}

/// Tells why a program cannot be published; the request is wrong, whatever is wrong with the program.
fn told(error: protocol::ErrorBody) -> ApiError {
    let refused = ApiError::new(error.error_code, error.message);
    match error.error_code {
        ErrorCode::DatabaseUnavailable | ErrorCode::SandboxUnavailable | ErrorCode::Internal => {
            refused
        }
        _ => refused
            .with_status(StatusCode::UNPROCESSABLE_ENTITY)
            .with_member("details", error.details),
    }
}

fn refused(error: RegistryError) -> ApiError {
    match error {
        RegistryError::Invalid(detail) => invalid(detail),
        RegistryError::Conflict(detail) => ApiError::new(ErrorCode::Conflict, detail),
        RegistryError::NotFound(_) => ApiError::not_found(),
        RegistryError::Denied(_) => {
            ApiError::new(ErrorCode::Forbidden, "nobody publishes in this scope over HTTP")
        }
        other => other.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_doc_comment_says_what_a_program_does() {
        let read = |code: &str| doc_comment(code);
        assert_eq!(read("/** Adds one. */ return 1").as_deref(), Some("Adds one."));
        assert_eq!(
            read("\n/**\n * Adds one.\n *\n * Twice.\n * @param n a number\n */\nreturn 1")
                .as_deref(),
            Some("Adds one.\n\nTwice.")
        );
        for code in [
            "return 1",
            "/* not one */ return 1",
            "/** never ends",
            "/** */ return 1",
            "return 1 /** late */",
        ] {
            assert_eq!(read(code), None, "{code}");
        }
    }

    #[test]
    fn a_name_is_written_as_an_id_or_as_in_code() {
        assert_eq!(parse_id("db:query").unwrap(), parse_id("db.query").unwrap());
        for name in ["", "db", "db.", "db.a.b", "db:a:b", "a.b:c", "../x:y"] {
            parse_id(name).expect_err(name);
        }
    }
}
