//! Publishing by tenants: capabilities and MCP servers, in immutable versions.
//!
//! `publication.rs` has what both kinds share; `capability.rs` and `server.rs` have the differences.

pub(crate) mod capability;
pub(crate) mod lookup;
pub(crate) mod names;
pub(crate) mod publication;
pub(crate) mod removal;
pub(crate) mod server;
pub(crate) mod version_update;
pub(crate) mod versions;
