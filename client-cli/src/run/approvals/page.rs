//! The page of a question, for a person at a browser.

use std::sync::{Arc, Weak};

use analysis::Plan;
use protocol::Approval;
use serde_json::Value;

use super::Approvals;
use crate::approval_page::{ApprovalPages, Opened, Shown};
use crate::browser::Browser;
use crate::consent::question::{Channel, Given};
use crate::diagram;
use crate::run::posted::{self, Posted};

impl Approvals {
    /// Creates the pages of the questions of `approvals`.
    pub(super) fn pages(approvals: Weak<Self>) -> ApprovalPages {
        let answers = move |id: &str, answer, without| {
            let Some(approvals) = approvals.upgrade() else { return false };
            approvals.settle(id, Given { answer, without, by: Channel::Page })
        };
        ApprovalPages::new(Browser::of_environment(), Box::new(answers))
    }

    /// Has the browser open the page of a question that waits; returns whether it can be
    /// used.
    pub(crate) async fn open_page(&self, workflow_id: &str) -> bool {
        let Some(pages) = &self.pages else { return false };
        let (posted, plan, closed) = {
            let runs = self.lock();
            let Some(waiting) = runs.waiting.get(workflow_id) else { return false };
            let Some(posted) = self.posted_question(&waiting.approval) else { return false };
            (posted, waiting.plan.clone(), waiting.closed.clone())
        };
        let opened = pages.open(workflow_id, || shown(&posted, plan.as_deref())).await;
        if opened == Opened::Now {
            let (pages, id) = (Arc::clone(pages), workflow_id.to_owned());
            tokio::spawn(async move {
                closed.cancelled().await;
                pages.close(&id);
            });
        }
        opened != Opened::Unusable
    }
}

/// Returns what the page of a question shows.
fn shown(posted: &Posted, plan: Option<&Plan>) -> Shown {
    let context = &posted.approval.context;
    let why = context.get("needs_person").and_then(Value::as_str);
    let is_dangerous = context.get("dangerous") == Some(&Value::Bool(true));
    Shown {
        workflow_id: posted.approval.workflow_id.clone(),
        text: posted::shown(posted),
        danger: why.filter(|_| is_dangerous).map(protocol::escape_text),
        offers_always: posted.approval.options.iter().any(|option| option == "always"),
        calls: calls(&posted.approval),
        // Without one, the text has everything.
        picture: plan.and_then(|plan| diagram::svg(plan).ok()),
    }
}

/// Returns the number of calls of which some can be left out.
fn calls(approval: &Approval) -> usize {
    let calls = approval.context.get("calls").and_then(Value::as_array);
    calls.map(Vec::len).filter(|calls| *calls > 1).unwrap_or_default()
}
