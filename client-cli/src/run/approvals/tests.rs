use serde_json::json;

use super::*;
use crate::consent::question::{About, AskedCall};
use crate::workspace::touched::Touched;

#[test]
fn ids_are_long_random_and_own() {
    let (a, b) = (new_workflow_id(), new_workflow_id());
    assert_ne!(a, b);
    assert_eq!(a.len(), 3 + 32);
    assert!(a.starts_with("wl_"));
}

#[test]
fn unknown_and_lost_workflows_are_distinguished() {
    let approvals = Approvals::default();
    let code = |id: &str| approvals.resume(id).err().map(|error| error.error_code);
    assert_eq!(code(&new_workflow_id()), Some(ErrorCode::WorkflowLost));
    assert_eq!(code("wl_x"), Some(ErrorCode::WorkflowNotFound));
    assert_eq!(code(""), Some(ErrorCode::WorkflowNotFound));
}

/// Starts a run that waits until it is cancelled, and pauses it.
fn ask(approvals: &Arc<Approvals>) -> (String, CancellationToken) {
    let ended = CancellationToken::new();
    let notify_end = ended.clone();
    let hash = Integrity::of(b"");
    let run = PausedRun::start(hash, |_, stop| async move {
        stop.cancelled().await;
        notify_end.cancel();
        protocol::Envelope::error(ErrorBody::new(ErrorCode::Cancelled, "cancelled"))
    });
    let (answer, _) = oneshot::channel();
    (approvals.pause(run, question(answer), hash).workflow_id, ended)
}

/// A question about a call.
pub(super) fn question(answer: oneshot::Sender<Given>) -> Question {
    let tool = "shell:exec".parse().unwrap();
    let call = AskedCall {
        tool,
        through: Vec::new(),
        arguments: json!({}),
        reason: String::new(),
        start: None,
        changed: None,
        count: 1,
        touched: Touched::default(),
        preview: None,
        sends_to: None,
        can_be_allowed: true,
    };
    Question { about: About::Call(Box::new(call)), needs_person: None, answer }
}

/// AP-09: a question without an answer ends the run, even if there is no further request.
#[tokio::test]
async fn an_unanswered_run_ends() {
    let expiry = Duration::from_millis(200);
    let approvals = Arc::new(Approvals { expiry, ..Approvals::default() });
    let begun = Instant::now();
    let (id, ended) = ask(&approvals);
    tokio::time::timeout(Duration::from_secs(30), ended.cancelled()).await.unwrap();
    assert!(begun.elapsed() >= expiry);
    let error = approvals.resume(&id).err().unwrap();
    assert_eq!(error.error_code, ErrorCode::ApprovalExpired);
}

/// Unanswered questions never occupy all slots of the sandbox pool.
#[tokio::test]
async fn the_oldest_question_is_evicted() {
    assert!(PAUSED_LIMIT < sandbox::PoolConfig::default().max_running);
    let approvals = Arc::default();
    let first = ask(&approvals);
    let rest: Vec<_> = (0..PAUSED_LIMIT).map(|_| ask(&approvals)).collect();
    tokio::time::timeout(Duration::from_secs(30), first.1.cancelled()).await.unwrap();
    let error = approvals.resume(&first.0).err().unwrap();
    assert_eq!(error.error_code, ErrorCode::WorkflowLost);
    assert!(error.message.contains("were waiting for an answer"), "{}", error.message);
    assert!(rest.iter().all(|(_, ended)| !ended.is_cancelled()));
    assert!(approvals.resume(&rest[0].0).is_ok());
}
