//! The only place where the gateway creates HTTP clients.
//!
//! Proxies from the environment are not used, in any spelling (`HTTP_PROXY`, `https_proxy`, `ALL_PROXY`): a proxy
//! would see secrets that are sent over `http` on this machine, and could replace an issuer's keys with its own.
//! Redirects are not followed, because they could lead to a host that was not configured.

use std::sync::Arc;
use std::time::Duration;

use reqwest::ClientBuilder;
use reqwest::dns::Resolve;
use reqwest::redirect::Policy;

/// The time limit for connecting to an upstream.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// The maximum number of idle sockets per upstream.
const IDLE_SOCKETS: usize = 64;

/// Creates a client builder for upstreams; `resolver` returns only permitted addresses.
pub(crate) fn for_upstreams(resolver: impl Resolve + 'static) -> ClientBuilder {
    // No time limit for a whole request: streams stay open, and calls have their own limit.
    direct()
        .dns_resolver(Arc::new(resolver))
        .connect_timeout(CONNECT_TIMEOUT)
        .pool_max_idle_per_host(IDLE_SOCKETS)
        .tcp_nodelay(true)
}

/// Creates a client builder for addresses that the operator has configured: an issuer's keys, another registry.
pub(crate) fn for_named(timeout: Duration) -> ClientBuilder {
    direct().timeout(timeout).user_agent(concat!("pml-server/", env!("CARGO_PKG_VERSION")))
}

/// Creates a client builder for what answers on the gateway's own address. The certificate there is for another name, and
/// may be of an authority that this machine does not trust. So it is not verified, but returned with the answer: send no
/// credential.
pub(crate) fn for_own_address(timeout: Duration) -> ClientBuilder {
    for_named(timeout).tls_danger_accept_invalid_certs(true).tls_info(true)
}

fn direct() -> ClientBuilder {
    #[expect(clippy::disallowed_methods, reason = "this is the only permitted place")]
    let builder = reqwest::Client::builder();
    builder.no_proxy().redirect(Policy::none()).referer(false)
}
