//! Limits that all gateways share.

pub(crate) mod quotas;
pub(crate) mod rates;
