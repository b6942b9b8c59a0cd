//! The one place where the gateway makes HTTP clients.
//!
//! No proxy from the environment is used, in any spelling (`HTTP_PROXY`, `https_proxy`, `ALL_PROXY`): it would see
//! keys that are sent over `http` on this machine, and could substitute its own keys for an issuer's. No redirect is
//! followed: it leads to a host that nobody configured.

use std::sync::Arc;
use std::time::Duration;

use reqwest::ClientBuilder;
use reqwest::dns::Resolve;
use reqwest::redirect::Policy;

/// The time limit for connecting to an upstream.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// The number of idle sockets kept per upstream.
const IDLE_SOCKETS: usize = 64;

/// Creates a client builder for upstreams, whose resolver permits only allowed addresses.
pub(crate) fn for_upstreams(resolver: impl Resolve + 'static) -> ClientBuilder {
    direct()
        .dns_resolver(Arc::new(resolver))
        .connect_timeout(CONNECT_TIMEOUT)
        .pool_max_idle_per_host(IDLE_SOCKETS)
        .tcp_nodelay(true)
}

/// Begins a client for addresses that the operator has named: an issuer's keys, another registry.
pub(crate) fn for_named(timeout: Duration) -> ClientBuilder {
    direct().timeout(timeout).user_agent(concat!("pml-server/", env!("CARGO_PKG_VERSION")))
}

fn direct() -> ClientBuilder {
    #[expect(clippy::disallowed_methods, reason = "this is the place")]
    let builder = reqwest::Client::builder();
    builder.no_proxy().redirect(Policy::none()).referer(false)
}
