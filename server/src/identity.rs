//! Authentication: turns a credential into a principal, a scope and rights.

pub(crate) mod credentials;
pub(crate) mod metrics_token;
pub(crate) mod progress;
pub(crate) mod requester;
pub(crate) mod sent_secrets;
pub(crate) mod sessions;
pub(crate) mod tokens;
