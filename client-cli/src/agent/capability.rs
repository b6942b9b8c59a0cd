//! A capability as an MCP server of its own: `pml run`.

use protocol::{ToolDescriptor, ToolId, meta_tools};
use rmcp::ServerHandler;
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, CancelTaskParams, GetTaskParams,
    GetTaskResult, Implementation, ListToolsResult, PaginatedRequestParams, ResultType,
    ServerConfig, Tool, ToolAnnotations, UpdateTaskParams,
};
use rmcp::service::{RequestContext, RoleServer};
use serde_json::{Map, Value, json};

use super::asking::Channel;
use super::{AgentHandler, Place, described};

/// The name of the tool that calls the capability.
const RUN: &str = "run";

/// The name of the tool that describes it.
const CONFIG: &str = "config";

/// Answers the MCP requests to one capability. Calls are made as those of any program, under the same rules.
#[derive(Clone)]
pub(crate) struct CapabilityHandler {
    agent: AgentHandler,
    /// Its full name with its version.
    id: ToolId,
    /// Its description and its parameters.
    described: ToolDescriptor,
    /// What `config` returns.
    config: Value,
}

impl CapabilityHandler {
    /// Creates a handler for the capability `id`.
    pub(crate) fn new(
        agent: AgentHandler,
        id: ToolId,
        described: ToolDescriptor,
        config: Value,
    ) -> Self {
        Self { agent, id, described, config }
    }

    fn run_tool(&self) -> Tool {
        described::tool(RUN, &self.id, &self.described)
    }

    fn config_tool(&self) -> Tool {
        let description = format!(
            "Returns the version and hash of `{}`, the tools that it calls, and what it needs.",
            self.id.plain()
        );
        let schema = object(&json!({ "type": "object", "additionalProperties": false }));
        Tool::new(CONFIG, description, schema).with_annotations(
            ToolAnnotations::with_title("Configuration")
                .read_only(true)
                .destructive(false)
                .idempotent(true)
                .open_world(false),
        )
    }
}

fn object(value: &Value) -> Map<String, Value> {
    value.as_object().cloned().unwrap_or_default()
}

impl ServerHandler for CapabilityHandler {
    fn get_info(&self) -> ServerConfig {
        let mut info = self.agent.get_info();
        info.server_info = Implementation::new(self.id.action(), self.id.version().unwrap_or("0"));
        // Escaped and bounded, as in the list of tools.
        info.instructions = self.run_tool().description.map(String::from);
        info
    }

    async fn list_tools(
        &self,
        _: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, rmcp::ErrorData> {
        let mut tools = vec![self.run_tool(), self.config_tool()];
        // A client that shows no forms gets a question as a result, and asks for the outcome with this tool.
        if Channel::of(&context).is_none() {
            tools.extend(execution::mcp_server::listed_tool(meta_tools::CONTINUE.name));
        }
        Ok(ListToolsResult::with_all_items(tools))
    }

    fn get_tool(&self, name: &str) -> Option<Tool> {
        match name {
            RUN => Some(self.run_tool()),
            CONFIG => Some(self.config_tool()),
            _ => self.agent.get_tool(name).filter(|_| meta_tools::CONTINUE.is(name)),
        }
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, rmcp::ErrorData> {
        match request.name.as_ref() {
            RUN => {
                let schema = Some(&self.described.input_schema);
                let place = Place::of(&context);
                let name = || Some(self.id.plain().to_string());
                let answer = self.agent.call_described(request, &self.id, schema, context);
                Ok(place.answer(name, Box::pin(answer)).await)
            }
            CONFIG => {
                let mut result = CallToolResult::structured(self.config.clone());
                result.result_type = Some(ResultType::COMPLETE);
                Ok(result.into())
            }
            name if meta_tools::CONTINUE.is(name) => self.agent.call_tool(request, context).await,
            name => {
                let name = protocol::escape_text(name);
                let message =
                    format!("there is no tool `{name}`; there are `{RUN}` and `{CONFIG}`");
                Err(rmcp::ErrorData::invalid_params(message, None))
            }
        }
    }

    async fn get_task(
        &self,
        request: GetTaskParams,
        context: RequestContext<RoleServer>,
    ) -> Result<GetTaskResult, rmcp::ErrorData> {
        self.agent.get_task(request, context).await
    }

    async fn update_task(
        &self,
        request: UpdateTaskParams,
        context: RequestContext<RoleServer>,
    ) -> Result<(), rmcp::ErrorData> {
        self.agent.update_task(request, context).await
    }

    async fn cancel_task(
        &self,
        request: CancelTaskParams,
        context: RequestContext<RoleServer>,
    ) -> Result<(), rmcp::ErrorData> {
        self.agent.cancel_task(request, context).await
    }

    execution::tools_only!();
}
