//! Organisations, projects, their members, keys and links.

pub(crate) mod keys;
pub(crate) mod links;
pub(crate) mod members;
pub(crate) mod projects;
pub(crate) mod scopes;
