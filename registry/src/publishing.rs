//! What tenants publish: capabilities and MCP servers, in versions that never change.
//!
//! `publication.rs` has what the two kinds share, `capability.rs` and `server.rs` what differs.

pub(crate) mod capability;
pub(crate) mod lookup;
pub(crate) mod names;
pub(crate) mod publication;
pub(crate) mod remark;
pub(crate) mod removal;
pub(crate) mod server;
pub(crate) mod versions;
