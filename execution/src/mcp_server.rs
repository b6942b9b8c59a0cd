//! The common part of both MCP servers: the meta-tools, envelopes as results, and unsupported methods.

pub mod progress;

use std::sync::{Arc, LazyLock};

use protocol::meta_tools::{self, MetaTool};
use protocol::{Envelope, ErrorBody, ErrorCode};
use rmcp::model::{
    CallToolResult, CustomRequest, MetaObject, ServerCapabilities, Tool, ToolAnnotations,
};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

/// The meta-tools as `tools/list` describes them. They are made once, because rmcp looks at one for each call.
static LISTED: LazyLock<Vec<Tool>> =
    LazyLock::new(|| meta_tools::META_TOOLS.iter().map(described).collect());

/// Returns the meta-tools as `tools/list` describes them.
pub fn listed_tools() -> Vec<Tool> {
    LISTED.clone()
}

/// Returns a meta-tool as `tools/list` describes it.
pub fn listed_tool(name: &str) -> Option<Tool> {
    LISTED.iter().find(|tool| tool.name == name).cloned()
}

fn described(tool: &MetaTool) -> Tool {
    let object = |schema| match schema {
        Value::Object(schema) => schema,
        _ => Default::default(),
    };
    let hints = tool.hints;
    Tool::new(tool.name, tool.description, object(tool.input_schema()))
        .with_title(tool.title)
        .with_raw_output_schema(Arc::new(object(tool.output_schema())))
        .with_annotations(
            ToolAnnotations::with_title(tool.title)
                .read_only(hints.read_only)
                .destructive(hints.destructive)
                .idempotent(hints.idempotent)
                .open_world(hints.open_world),
        )
}

/// Reads the arguments of a meta-tool.
///
/// # Errors
/// Returns `INVALID_REQUEST` for invalid arguments.
pub fn parse<T: DeserializeOwned>(tool: &str, arguments: Value) -> Result<T, ErrorBody> {
    serde_json::from_value(arguments).map_err(|error| {
        ErrorBody::new(
            ErrorCode::InvalidRequest,
            format!("the arguments of `{}`: {error}", protocol::escape_text(tool)),
        )
    })
}

/// Wraps an envelope in an MCP result: as structured content, and as JSON text.
pub fn envelope_result(envelope: &Envelope) -> CallToolResult {
    let mut result = structured_result(envelope, envelope.is_error());
    result.meta = meta_tools::run_meta(envelope).map(MetaObject);
    result
}

/// Wraps a value in an MCP result: as structured content, and as JSON text.
pub fn structured_result(body: &impl Serialize, is_error: bool) -> CallToolResult {
    let structured = serde_json::to_value(body)
        .unwrap_or_else(|error| json!({ "status": "error", "message": error.to_string() }));
    if is_error {
        CallToolResult::structured_error(structured)
    } else {
        CallToolResult::structured(structured)
    }
}

/// The methods of the extension `io.modelcontextprotocol/tasks` (SEP-2663).
const TASK_METHODS: [&str; 3] = ["tasks/get", "tasks/update", "tasks/cancel"];

/// The method with which a client of 2026-07-28 asks to be told about changes.
const LISTEN_METHOD: &str = "subscriptions/listen";

/// Returns the error for a message that did not decode as an MCP request, by a server with these capabilities.
pub fn undecoded(request: CustomRequest, capabilities: &ServerCapabilities) -> rmcp::ErrorData {
    let method = request.method;
    let is_of_tasks = capabilities.supports_tasks() && TASK_METHODS.contains(&method.as_str());
    let changes = capabilities.tools.as_ref().and_then(|tools| tools.list_changed);
    let is_of_changes = changes == Some(true) && method == LISTEN_METHOD;
    if is_of_tasks || is_of_changes || meta_tools::METHODS.contains(&method.as_str()) {
        let message = format!("the parameters of `{method}` are invalid");
        rmcp::ErrorData::invalid_params(message, None)
    } else {
        rmcp::ErrorData::new(rmcp::model::ErrorCode::METHOD_NOT_FOUND, method, None)
    }
}

/// Expands to the methods of a `ServerHandler` that has the meta-tools and no other features.
#[macro_export]
macro_rules! meta_tools_only {
    () => {
        async fn list_tools(
            &self,
            _: Option<rmcp::model::PaginatedRequestParams>,
            _: rmcp::service::RequestContext<rmcp::service::RoleServer>,
        ) -> Result<rmcp::model::ListToolsResult, rmcp::ErrorData> {
            let tools = $crate::mcp_server::listed_tools();
            Ok(rmcp::model::ListToolsResult::with_all_items(tools))
        }

        fn get_tool(&self, name: &str) -> Option<rmcp::model::Tool> {
            $crate::mcp_server::listed_tool(name)
        }

        $crate::tools_only!();
    };
}

/// Expands to the methods of a `ServerHandler` that has tools and no other features.
///
/// By default, rmcp answers unsupported methods with empty lists, but a client must learn that the method does not
/// exist.
#[macro_export]
macro_rules! tools_only {
    () => {
        async fn list_prompts(
            &self,
            _: Option<rmcp::model::PaginatedRequestParams>,
            _: rmcp::service::RequestContext<rmcp::service::RoleServer>,
        ) -> Result<rmcp::model::ListPromptsResult, rmcp::ErrorData> {
            Err(rmcp::ErrorData::method_not_found::<rmcp::model::ListPromptsRequestMethod>())
        }

        async fn list_resources(
            &self,
            _: Option<rmcp::model::PaginatedRequestParams>,
            _: rmcp::service::RequestContext<rmcp::service::RoleServer>,
        ) -> Result<rmcp::model::ListResourcesResult, rmcp::ErrorData> {
            Err(rmcp::ErrorData::method_not_found::<rmcp::model::ListResourcesRequestMethod>())
        }

        async fn list_resource_templates(
            &self,
            _: Option<rmcp::model::PaginatedRequestParams>,
            _: rmcp::service::RequestContext<rmcp::service::RoleServer>,
        ) -> Result<rmcp::model::ListResourceTemplatesResult, rmcp::ErrorData> {
            Err(rmcp::ErrorData::method_not_found::<
                rmcp::model::ListResourceTemplatesRequestMethod,
            >())
        }

        async fn complete(
            &self,
            _: rmcp::model::CompleteRequestParams,
            _: rmcp::service::RequestContext<rmcp::service::RoleServer>,
        ) -> Result<rmcp::model::CompleteResult, rmcp::ErrorData> {
            Err(rmcp::ErrorData::method_not_found::<rmcp::model::CompleteRequestMethod>())
        }

        async fn on_custom_request(
            &self,
            request: rmcp::model::CustomRequest,
            _: rmcp::service::RequestContext<rmcp::service::RoleServer>,
        ) -> Result<rmcp::model::CustomResult, rmcp::ErrorData> {
            Err($crate::mcp_server::undecoded(request, &self.get_info().capabilities))
        }
    };
}
