//! Tool calls, which are the only way out of a program.

use futures::future::BoxFuture;
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use crate::clock::WallClock;

/// Answers a program's tool calls. It decides whether a call may happen at all.
pub trait ToolCaller: Send + Sync + 'static {
    /// Starts one call. When the run ends for any reason, the token is cancelled and the future dropped.
    fn call(
        &self,
        call: ToolCall,
        cancel: CancellationToken,
    ) -> BoxFuture<'static, Result<Value, CallError>>;

    /// Returns when the program gets the answer to a call, in milliseconds since its start; `None` for now. Asked right
    /// after the call's future has ended, for a program with a repeatable clock. Times must not go back.
    fn answered_at(&self, _call: u64) -> Option<u64> {
        None
    }
}

/// One call of `mcp.<namespace>.<action>(args)`.
#[derive(Clone, Debug)]
pub struct ToolCall {
    /// The number of the call within its run, from 1.
    pub id: u64,
    /// The name before the last dot.
    pub namespace: String,
    /// The name after the last dot.
    pub action: String,
    /// A JSON object.
    pub args: Value,
    /// The run's wall clock. Hold [`WallClock::pause`] while a human decides.
    pub clock: WallClock,
}

/// The error that a call throws in the program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallError {
    /// The error's `name`.
    pub name: String,
    /// The error's `message`.
    pub message: String,
    /// The error's `code`, if it has one.
    pub code: Option<String>,
}

impl CallError {
    /// Returns a plain `Error`.
    #[must_use]
    pub fn new(message: impl Into<String>) -> CallError {
        CallError { name: "Error".to_owned(), message: message.into(), code: None }
    }

    /// Adds a code that the program can test.
    #[must_use]
    pub fn with_code(mut self, code: impl Into<String>) -> CallError {
        self.code = Some(code.into());
        self
    }
}
