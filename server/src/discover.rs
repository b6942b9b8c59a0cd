//! `pml_discover`: finds tools by name, pattern or words.

use protocol::model_text::{TextFlags, description_for_model, schema_for_model};
use protocol::{ErrorBody, ErrorCode};
use registry::{DiscoverQuery, RegistryError};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::auth::Requester;
use crate::error::registry_error;
use crate::state::SharedGateway;

/// The arguments of `pml_discover`.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DiscoverRequest {
    /// What the tool should do, in words.
    #[serde(default)]
    pub intent: Option<String>,
    /// A tool pattern.
    #[serde(default)]
    pub pattern: Option<String>,
    /// One tool's exact id.
    #[serde(default)]
    pub name: Option<String>,
    /// How many to return, 1 to 50.
    #[serde(default)]
    pub limit: Option<u32>,
}

/// Finds tools that the caller can use, best first.
///
/// # Errors
/// Returns `INVALID_REQUEST` unless exactly one way to look is given.
pub async fn discover(
    gateway: &SharedGateway,
    requester: &Requester,
    request: DiscoverRequest,
) -> Result<Value, ErrorBody> {
    let invalid = |message: String| ErrorBody::new(ErrorCode::InvalidRequest, message);
    let query = match (request.name, request.pattern, request.intent) {
        (Some(name), None, None) => DiscoverQuery::Name(name),
        (None, Some(pattern), None) => DiscoverQuery::Pattern(pattern),
        (None, None, Some(intent)) => DiscoverQuery::Text(intent),
        (None, None, None) => DiscoverQuery::Pattern("*".to_owned()),
        _ => return Err(invalid("give one of `intent`, `pattern` and `name`".to_owned())),
    };
    let limit = request.limit.unwrap_or(10).clamp(1, 50);
    let found =
        gateway.registry.discover(&requester.tenant(), &query, limit).await.map_err(|error| {
            match error {
                RegistryError::Invalid(reason) => invalid(reason),
                other => registry_error(&other),
            }
        })?;
    let tools: Vec<Value> = found
        .into_iter()
        .map(|tool| {
            // Strangers wrote these texts, and a model reads them.
            let mut flags = TextFlags::default();
            let descriptor = &tool.descriptor;
            let mut shown = json!({
                "id": tool.id,
                "fqdn": tool.fqdn.to_string(),
                "call": tool.id.call_form(),
                "description": description_for_model(&descriptor.description, &mut flags),
                "routing": tool.routing,
                "read_only": tool.read_only,
                "input_schema": schema_for_model(&descriptor.input_schema, &mut flags),
                "output_schema": descriptor.output_schema.as_ref().map(|out| schema_for_model(out, &mut flags)),
            });
            if !flags.is_empty() {
                shown["flags"] = json!(flags.words());
            }
            shown
        })
        .collect();
    Ok(json!({ "tools": tools }))
}
