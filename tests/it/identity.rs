//! Who may do what, and where keys and secrets go.

mod access;
mod ambient_proxies;
mod audit;
mod credentials;
mod impersonation;
pub(crate) mod key_hosts;
pub(crate) mod keys;
mod leaks;
mod library_logs;
pub(crate) mod members;
mod passthrough;
mod private;
mod secrets;
mod sessions;
mod sweep;
mod tokens;
