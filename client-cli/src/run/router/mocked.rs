//! Answers the calls of a run with `--mock` from the record of another run.

use protocol::{ErrorBody, ErrorCode, ToolId};
use sandbox::ToolCall;
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use super::Caller;
use crate::capabilities::Target;
use crate::run::journal::Step;

impl Caller {
    /// Returns what a call does: it gets the answer of another run's call, or is made or refused as in any other run.
    pub(super) async fn mocked(
        &self,
        call: &ToolCall,
        tool: &str,
        cancel: &CancellationToken,
    ) -> Result<Step, ErrorBody> {
        let make = Ok(Step::Make(None));
        // A capability is answered as a whole.
        let Some(mock) = self.run.mock.as_ref().filter(|_| self.outer.is_empty()) else {
            return make;
        };
        let Ok(id) = ToolId::from_call(&call.namespace, &call.action) else { return make };
        let Ok(target) = self.target(&id, cancel).await else { return make };
        if self.is_denied(&id, &target, &call.args) {
            return make;
        }
        let Some(found) = mock.take(tool, &call.args) else {
            self.run.warn(format!(
                "call {} of `{tool}` has no answer in the record of run {}, so it was not mocked",
                call.id, mock.run
            ));
            return make;
        };
        // The program gets answers in the order of their records, so nothing is waited for from here on.
        let (name, at_ms) = (self.name(call.id), self.clock.now_ms());
        self.run.recorder.mock_call(&name, tool, &call.args, &mock.run, &found, at_ms)?;
        Ok(Step::Answer { at_ms, routing: found.routing, answer: found.answer })
    }

    /// Returns whether a rule or the policy denies a call. A recorded answer may be what they keep from a program now.
    fn is_denied(&self, id: &ToolId, target: &Target, arguments: &Value) -> bool {
        let rule = self.rules.get(id).unwrap_or(id);
        let touched = self.run.app.check_call(rule, target, arguments, &self.run.policy);
        // Whatever else is wrong, such as a missing file, does not matter: nothing is touched.
        let decision = match touched {
            Ok(touched) => self.run.decide(rule, target, Some(&touched)).map(drop),
            Err(error) => self.run.decide(rule, target, None).and(Err(error)),
        };
        decision.is_err_and(|error| {
            matches!(error.error_code, ErrorCode::PermissionDenied | ErrorCode::PolicyDenied)
        })
    }
}
