//! One request to a running server, and its cancellation.

use std::sync::atomic::Ordering;
use std::time::Duration;

use rmcp::model::{
    CancelledNotification, CancelledNotificationParam, ClientRequest, RequestId, ServerResult,
};
use rmcp::service::{Peer, PeerRequestOptions, RequestHandle, RoleClient, ServiceError};
use tokio_util::sync::CancellationToken;

use super::lifecycle::{InUse, end};

/// Why a request has no answer.
#[derive(Debug)]
pub enum NoAnswer {
    /// It was cancelled; the server is told.
    Cancelled,
    /// It failed.
    Failed(ServiceError),
}

impl InUse {
    /// Sends a request and waits for its answer. A server that does not answer anything within `grace` after a request was
    /// cancelled is stopped, unless other calls use it. Dropping the future cancels the request, too.
    ///
    /// # Errors
    /// Returns [`NoAnswer`]. The request may have had effects.
    pub async fn ask(
        &self,
        request: ClientRequest,
        options: PeerRequestOptions,
        grace: Duration,
        cancel: &CancellationToken,
    ) -> Result<ServerResult, NoAnswer> {
        let peer = self.0.session.service.peer();
        // No time limit here: the caller has one, and cancels the request.
        let sent = peer.send_cancellable_request(request, options);
        let mut handle: RequestHandle<RoleClient> = tokio::select! {
            () = cancel.cancelled() => return Err(NoAnswer::Cancelled),
            sent = sent => sent.map_err(NoAnswer::Failed)?,
        };
        // Declared after `handle`, so that it is dropped first and can still notify the server.
        let mut notice = CancelNotice { running: self, id: Some(handle.id.clone()), grace };
        tokio::select! {
            () = cancel.cancelled() => Err(NoAnswer::Cancelled),
            answer = &mut handle.rx => {
                notice.id = None;
                answer.unwrap_or(Err(ServiceError::TransportClosed)).map_err(NoAnswer::Failed)
            }
        }
    }
}

/// Notifies the server on drop that a call is cancelled, unless it was answered.
struct CancelNotice<'a> {
    running: &'a InUse,
    id: Option<RequestId>,
    grace: Duration,
}

impl Drop for CancelNotice<'_> {
    fn drop(&mut self) {
        let Some(id) = self.id.take() else { return };
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        // The server counts as in use until `cancel_call` has checked that it still answers.
        runtime.spawn(cancel_call(InUse::new(&self.running.0), id, self.grace));
    }
}

/// Cancels a call, and stops the server if it no longer answers.
async fn cancel_call(running: InUse, id: RequestId, grace: Duration) {
    let peer: &Peer<RoleClient> = running.0.session.service.peer();
    let reason = Some("the run was cancelled".to_owned());
    let params = CancelledNotificationParam::new(Some(id), reason);
    let notice = CancelledNotification::new(params);
    let sent = tokio::time::timeout(grace, peer.send_notification(notice.into())).await;
    let answers = tokio::time::timeout(grace, peer.list_tools(None)).await;
    // Any answer shows that the server is alive. A hung server is not stopped while other calls use it.
    let is_hung = sent.is_err() || answers.is_err();
    // `running` itself counts as one call.
    if is_hung && running.0.calls.load(Ordering::SeqCst) <= 1 {
        end(&running.0).await;
    }
}
