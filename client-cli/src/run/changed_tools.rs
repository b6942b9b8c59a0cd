//! Tools of local servers that changed since the user allowed them: the call waits until the user has seen the change.
//!
//! What a server says of its tools is known only while it runs, so a call is permitted first, and compared then.

use execution::spans::Span;
use protocol::{ErrorBody, ErrorCode, Integrity, ToolId};
use sandbox::WallClock;
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

use super::local_run::LocalRun;
use super::paused::RunEvent;
use super::permission::PendingCall;
use super::recorder::AnsweredQuestion;
use crate::app::OpenServer;
use crate::consent::changed_tool::ChangedTool;
use crate::consent::question::left_out::LeftOut;
use crate::consent::question::{About, Answer, AskedCall, Channel, Given, NeedsPerson, Question};
use crate::run_store::record;
use crate::workspace::touched::Touched;

/// How often the user is asked about one call because its tool changed. A server that changes it each time must not ask
/// forever.
const QUESTIONS_LIMIT: usize = 3;

impl LocalRun {
    /// Opens the server of a tool for a call that is permitted. If the tool changed since the user allowed it, asks
    /// whether it is to be called as it is now.
    ///
    /// # Errors
    /// Returns why the server cannot be called, and `APPROVAL_DENIED` or `APPROVAL_EXPIRED` if the run was ended. The
    /// call must not be made then.
    pub(super) async fn open_server(
        &self,
        pending: &PendingCall<'_>,
        cancel: &CancellationToken,
    ) -> Result<OpenServer, ErrorBody> {
        // Until the process that is called has the tool that was approved: it may change again, or the server may start
        // again, while the user is asked.
        for _ in 0..QUESTIONS_LIMIT {
            let server = self.opened(pending, cancel).await?;
            if self.app.changed_tool(&server, pending.tool)?.is_none() {
                return Ok(server);
            }
            let _paused_clocks: Vec<_> = pending.clocks.iter().map(WallClock::pause).collect();
            let _asking = tokio::select! {
                asking = self.asking.lock() => asking,
                () = cancel.cancelled() => return Err(cancelled()),
            };
            // The previous question may have been about this tool, too.
            if let Some(changed) = self.app.changed_tool(&server, pending.tool)? {
                let by = self.ask_about_change(pending, &changed, cancel).await?;
                self.app.approve_tool(&server, &changed.now, by.as_str())?;
            }
        }
        let server = self.opened(pending, cancel).await?;
        match self.app.changed_tool(&server, pending.tool)? {
            None => Ok(server),
            Some(_) => Err(changes_always(pending.tool)),
        }
    }

    async fn opened(
        &self,
        pending: &PendingCall<'_>,
        cancel: &CancellationToken,
    ) -> Result<OpenServer, ErrorBody> {
        let PendingCall { tool, target, arguments, .. } = *pending;
        self.app.open_server(target, tool, arguments, cancel).await
    }

    /// Asks whether a changed tool is to be called as it is now, and returns how that was answered; no ends the run.
    async fn ask_about_change(
        &self,
        pending: &PendingCall<'_>,
        changed: &ChangedTool,
        cancel: &CancellationToken,
    ) -> Result<Channel, ErrorBody> {
        self.recorder.check_stored().await.map_err(|error| self.end_with(error))?;
        let id = pending.id;
        let reason = changed.summary(id);
        let call = AskedCall {
            tool: id.clone(),
            through: pending.through.to_vec(),
            arguments: pending.arguments.clone(),
            reason: reason.clone(),
            start: None,
            changed: Some(changed.clone()),
            count: 1,
            touched: Touched::default(),
            preview: None,
            sends_to: None,
            // A rule permits calls, and says nothing about what the server makes of the tool.
            can_be_allowed: false,
        };
        let about = About::Call(Box::new(call));
        let shown = Integrity::of(about.text().as_bytes());
        let needs_person = NeedsPerson::of(&self.app.permissions(), Some(NeedsPerson::Tool));
        let (answer, answered) = oneshot::channel();
        let question = Question { about, needs_person, answer };
        let asked_at = record::now();
        let end =
            |code, why: &str| self.end(code, format!("{why}, so it was not called: {reason}"));
        if self.send(RunEvent::Asks(Box::new(question))).is_err() {
            return Err(end(
                ErrorCode::ApprovalExpired,
                &format!("nobody can be asked about `{id}`"),
            ));
        }
        self.open_questions(vec![AnsweredQuestion {
            asked_at,
            tool: id.clone(),
            arguments: pending.arguments.clone(),
            count: 1,
            reason: reason.clone(),
            shown,
            answer: None,
            is_left_out: false,
            covers: None,
        }]);
        let waiting = Span::of_step("pml.approval");
        let given = tokio::select! {
            // Without an answer, the run is cancelled, too.
            biased;
            given = answered => given.ok(),
            () = cancel.cancelled() => return Err(cancelled()),
        };
        waiting.end(None);
        let Some(given) = given else {
            let why = format!("the question about `{id}` was not answered");
            return Err(end(ErrorCode::ApprovalExpired, &why));
        };
        // The question does not offer "always", but a client may send it.
        let answer = match given.answer {
            Answer::Once | Answer::Always => Answer::Once,
            Answer::Abort => Answer::Abort,
        };
        // An answer counts only once it is recorded.
        self.record_answers(Given { answer, without: LeftOut::default(), by: given.by }).await?;
        match answer {
            Answer::Abort => {
                let why = format!("the user did not allow `{id}` as it is now");
                Err(end(ErrorCode::ApprovalDenied, &why))
            }
            Answer::Once | Answer::Always => Ok(given.by),
        }
    }
}

fn changes_always(tool: &ToolId) -> ErrorBody {
    let message = format!(
        "`{tool}` was not called: its server described it differently each of {QUESTIONS_LIMIT} times that it was allowed"
    );
    let mut error = ErrorBody::new(ErrorCode::IntegrityMismatch, message);
    error.hint =
        "A server that does so cannot be pinned. Look for another version of it.".to_owned();
    error
}

fn cancelled() -> ErrorBody {
    ErrorBody::new(ErrorCode::Cancelled, "the run was cancelled")
}
