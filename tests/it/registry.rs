//! The registry: publishing, discovery, routing and deletion.

pub(crate) mod capabilities;
mod discovery;
mod http;
mod idempotency;
mod ingest;
pub(crate) mod official;
mod publish_mcp;
mod publish_official;
mod read_official;
mod routing;
mod servers;
mod upstream_schemas;
