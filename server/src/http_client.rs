//! The one place where the gateway makes HTTP clients.
//!
//! No proxy of the environment is asked, in whatever spelling (`HTTP_PROXY`, `https_proxy`, `ALL_PROXY`): it would see
//! keys that travel by `http` on this machine, and could answer with keys of its own where an issuer is asked for its
//! keys. No redirect is followed: it leads to a host that nobody named.

use std::sync::Arc;
use std::time::Duration;

use reqwest::ClientBuilder;
use reqwest::dns::Resolve;
use reqwest::redirect::Policy;

/// How long a connection to an upstream may take to come about.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// How many sockets to one upstream wait for their next use.
const IDLE_SOCKETS: usize = 64;

/// Begins a client for upstreams, whose names are looked up by a resolver that knows which addresses are meant.
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
