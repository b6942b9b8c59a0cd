//! The only place where `pml` creates HTTP clients.
//!
//! Their rules, whatever the environment contains:
//!
//! - This machine is reached directly. A proxy would get the request, with the key, in clear text; and `localhost` is
//!   this machine, whatever a name server answers.
//! - `http` is never sent by a proxy, and never to another machine with a key.
//! - `https` uses the proxy in `HTTPS_PROXY`, unless `NO_PROXY` lists the host: as a tunnel (`CONNECT`), in which the
//!   proxy sees only the host's name. `HTTP_PROXY` and `ALL_PROXY` are not read.
//! - No redirect is followed: it could carry a key to another host.
//! - Addresses that programs open are connected to directly: a proxy would resolve the name, and could reach a private
//!   address.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use execution::Values;
use execution::mcp_client::BudgetedClient;
use protocol::json::MESSAGE_VALUES;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use reqwest::redirect::Policy;
use reqwest::{Client, ClientBuilder, NoProxy, Proxy};
use rmcp::transport::StreamableHttpClientTransport;
use rmcp::transport::streamable_http_client::StreamableHttpClientTransportConfig;
use url::{Host, Url};

/// The time limit for establishing a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// The size of all headers of an answer over HTTP/2, in bytes. Over HTTP/1.1, the library allows 100 headers.
const HEADERS_LIMIT: u32 = 64 * 1024;

/// The variables that name a proxy for `https`, in the order in which `curl` reads them.
const PROXY_VARIABLES: [&str; 2] = ["https_proxy", "HTTPS_PROXY"];

/// Why no client can be created for an address.
#[derive(Debug, thiserror::Error)]
pub(crate) enum HttpClientError {
    /// A key would be sent unencrypted.
    #[error(
        "`http` would send the API key unencrypted; use `https`, or `http` to this machine only"
    )]
    Unencrypted,
    /// The proxy cannot be used. Its address is not shown: it may contain a password.
    #[error("`{0}` is not a proxy URL; write `http://HOST:PORT`")]
    Proxy(&'static str),
}

/// Whether a request contains something that only its target may see.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Credential {
    /// A key, or headers that may hold one.
    Sent,
    /// No credential.
    None,
}

/// Returns whether an address is on this machine, by its name alone.
pub(crate) fn is_this_machine(url: &Url) -> bool {
    match url.host() {
        // RFC 6761 reserves `localhost` and all names beneath it for the loopback address.
        Some(Host::Domain(name)) => name == "localhost" || name.ends_with(".localhost"),
        Some(Host::Ipv4(address)) => IpAddr::V4(address).is_loopback(),
        Some(Host::Ipv6(address)) => IpAddr::V6(address).is_loopback(),
        None => false,
    }
}

/// Returns a builder for a client that sends requests to the origin of one address.
///
/// # Errors
/// Returns [`HttpClientError`] if a key would be sent unencrypted, or the proxy's URL is invalid.
pub(crate) fn builder(url: &Url, credential: Credential) -> Result<ClientBuilder, HttpClientError> {
    let builder = direct();
    if is_this_machine(url) {
        return Ok(builder.dns_resolver(ThisMachine));
    }
    if url.scheme() != "https" {
        return match credential {
            Credential::Sent => Err(HttpClientError::Unencrypted),
            Credential::None => Ok(builder),
        };
    }
    // An empty variable counts as unset.
    let named = PROXY_VARIABLES.into_iter().find_map(|name| {
        let value = std::env::var(name).ok().filter(|value| !value.trim().is_empty())?;
        Some((name, value))
    });
    let Some((name, proxy)) = named else { return Ok(builder) };
    let proxy = proxy.trim();
    // As in `curl`, a proxy without a scheme is reached by `http`.
    let proxy = if proxy.contains("://") { proxy.to_owned() } else { format!("http://{proxy}") };
    // The library would skip a proxy with an unsupported scheme, and connect directly.
    let url = Url::parse(&proxy).ok().filter(|url| matches!(url.scheme(), "http" | "https"));
    let url = url.filter(Url::has_host).ok_or(HttpClientError::Proxy(name))?;
    let proxy = Proxy::https(url).map_err(|_| HttpClientError::Proxy(name))?;
    Ok(builder.proxy(proxy.no_proxy(NoProxy::from_env())))
}

/// Returns a builder for a client that opens the web addresses of programs; `resolver` returns only permitted addresses.
pub(crate) fn for_web(resolver: impl Resolve + 'static) -> ClientBuilder {
    direct().dns_resolver(resolver).http2_max_header_list_size(HEADERS_LIMIT)
}

fn direct() -> ClientBuilder {
    #[expect(clippy::disallowed_methods, reason = "the only place that may")]
    let builder = reqwest::Client::builder();
    builder
        // Disables the library's own use of the environment.
        .no_proxy()
        .redirect(Policy::none())
        .referer(false)
        .connect_timeout(CONNECT_TIMEOUT)
        .tcp_nodelay(true)
        .user_agent(concat!("pml/", env!("CARGO_PKG_VERSION")))
}

/// Returns a transport to an MCP server, which checks the size of every answer before it is parsed.
pub(crate) fn mcp_transport(
    client: Client,
    config: StreamableHttpClientTransportConfig,
) -> StreamableHttpClientTransport<BudgetedClient<Values>> {
    let client = BudgetedClient::new(client, Values { most: MESSAGE_VALUES });
    StreamableHttpClientTransport::with_client(client, config)
}

/// Resolves every name to this machine.
struct ThisMachine;

impl Resolve for ThisMachine {
    fn resolve(&self, _: Name) -> Resolving {
        // Port 0: the client takes the port from the URL.
        let addresses = [IpAddr::V4(Ipv4Addr::LOCALHOST), IpAddr::V6(Ipv6Addr::LOCALHOST)]
            .map(|address| SocketAddr::new(address, 0));
        let addresses: Addrs = Box::new(addresses.into_iter());
        Box::pin(std::future::ready(Ok(addresses)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// NX-06: a key is sent encrypted, or to this machine only.
    #[test]
    fn a_key_is_not_sent_in_clear_to_another_machine() {
        for (url, is_sent) in [
            ("http://127.0.0.1:1/", true),
            ("http://127.9.9.9/", true),
            ("http://[::1]/", true),
            ("http://localhost/", true),
            ("http://gw.localhost/", true),
            ("https://gw.example/", true),
            ("http://gw.example/", false),
            ("http://localhost.example/", false),
            ("http://10.0.0.1/", false),
            // An IPv4-mapped loopback address is not recognized. The refusal is on the safe side.
            ("http://[::ffff:127.0.0.1]/", false),
        ] {
            let url: Url = url.parse().unwrap();
            assert_eq!(builder(&url, Credential::Sent).is_ok(), is_sent, "{url}");
            assert!(builder(&url, Credential::None).is_ok(), "{url}");
        }
    }
}
