//! The id of the request that the current task answers.

use tower_http::request_id::RequestId;

tokio::task_local! {
    static ID: RequestId;
}

/// Returns the id of the request that this task answers, if any.
pub(super) fn current() -> Option<String> {
    // Spawned tasks do not inherit the id, so its absence is not an error.
    ID.try_with(|id| id.header_value().to_str().ok().map(str::to_owned)).ok()?
}

/// Runs `answer` with the id of its request, which server errors contain.
pub(crate) async fn with_request_id<T>(id: RequestId, answer: impl Future<Output = T>) -> T {
    ID.scope(id, answer).await
}
