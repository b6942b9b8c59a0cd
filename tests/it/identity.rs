//! Authentication and authorization, and where API keys and secrets are sent.

mod access;
mod ambient_proxies;
mod audit;
mod credentials;
mod impersonation;
pub(crate) mod keys;
mod leaks;
mod library_logs;
pub(crate) mod members;
mod passthrough;
mod process_privacy;
mod rotation;
pub(crate) mod secret_hosts;
mod secret_sweep;
mod secrets;
mod sessions;
mod tokens;
