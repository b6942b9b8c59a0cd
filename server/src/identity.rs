//! Who calls: a credential becomes a principal, a scope and rights.

pub mod caller_keys;
pub mod credentials;
pub mod progress;
pub mod requester;
pub mod sessions;
pub mod tokens;
