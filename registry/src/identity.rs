//! The principal, the role, the rights and the tenant of a request. Nothing here queries the database.

pub(crate) mod caller;
pub(crate) mod principal;
pub(crate) mod right;
pub(crate) mod role;
pub(crate) mod tenant;
