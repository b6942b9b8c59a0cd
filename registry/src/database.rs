//! The connections to Postgres, and the transactions that name their tenant.

pub(crate) mod connect;
pub(crate) mod inspection;
pub(crate) mod liveness;
pub(crate) mod operator;
pub(crate) mod pool;
pub(crate) mod replacement;
pub(crate) mod together;
pub(crate) mod transaction;
