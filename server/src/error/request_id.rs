//! The id of the request that the current task answers.

use tower_http::request_id::RequestId;
use tracing::Instrument as _;

tokio::task_local! {
    static ID: RequestId;
}

/// Returns the id of the request that this task answers, if any.
pub(super) fn current() -> Option<String> {
    // Some tasks belong to no request, so its absence is not an error.
    ID.try_with(|id| id.header_value().to_str().ok().map(str::to_owned)).ok()?
}

/// Makes a future belong to the current request when it is spawned: with the request's id and its span, which spawned
/// tasks do not inherit.
pub(crate) fn in_current_request<T>(work: impl Future<Output = T>) -> impl Future<Output = T> {
    let id = ID.try_with(Clone::clone).ok();
    let work = async move {
        match id {
            Some(id) => with_request_id(id, work).await,
            None => work.await,
        }
    };
    work.in_current_span()
}

/// Runs `answer` with the id of its request, which server errors contain.
pub(crate) async fn with_request_id<T>(id: RequestId, answer: impl Future<Output = T>) -> T {
    ID.scope(id, answer).await
}
