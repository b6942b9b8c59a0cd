//! The baseline: an axum handler that reads the body and answers prepared bytes.

use std::error::Error;
use std::net::SocketAddr;

use axum::Router;
use axum::body::Bytes;
use axum::http::{StatusCode, header};
use axum::routing::{get, post};
use tokio::runtime::Runtime;

/// Serves `posted` on `POST /mcp`, `got` on `GET /entry` and an empty 304 on `GET /same`.
pub(crate) fn serve(
    runtime: &Runtime,
    posted: Vec<u8>,
    got: Vec<u8>,
) -> Result<SocketAddr, Box<dyn Error>> {
    let (posted, got) = (Bytes::from(posted), Bytes::from(got));
    let json = |bytes: Bytes| ([(header::CONTENT_TYPE, "application/json")], bytes);
    let router = Router::new()
        .route("/mcp", post(move |_body: Bytes| async move { json(posted) }))
        .route("/entry", get(move || async move { json(got) }))
        .route("/same", get(async || StatusCode::NOT_MODIFIED));
    let listener = runtime.block_on(tokio::net::TcpListener::bind("127.0.0.1:0"))?;
    let address = listener.local_addr()?;
    runtime.spawn(async move { axum::serve(listener, router).await });
    Ok(address)
}
