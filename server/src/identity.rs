//! Who calls: a credential becomes a principal, a scope and rights.

pub(crate) mod caller_keys;
pub(crate) mod credentials;
pub(crate) mod progress;
pub(crate) mod requester;
pub(crate) mod sessions;
pub(crate) mod tokens;
