//! The proxy of a sealed server: the only way from it to the network.
//!
//! It opens the connections that the server asks for, if the server's entry lists the host, and only to addresses that
//! are public or listed themselves. A name is resolved here, once for each connection, so a second look-up cannot return
//! another address.

use std::convert::Infallible;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt as _, Full};
use hyper::body::{Bytes, Incoming};
use hyper::header::{
    CONNECTION, HOST, HeaderMap, HeaderName, HeaderValue, PROXY_AUTHORIZATION, TE, TRAILER,
    TRANSFER_ENCODING, UPGRADE,
};
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode, Uri};
use hyper_util::rt::{TokioIo, TokioTimer};
use sandbox::Handover;
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;
use url::{Host, Url};

use super::HostList;
use crate::connections;

/// The maximum number of connections of a server at the same time.
const CONNECTIONS_LIMIT: usize = 256;

/// The time limit for the head of a request.
const HEAD_TIME: Duration = Duration::from_secs(30);

/// The time limit for looking up a name, and for connecting to an address.
const CONNECT_TIME: Duration = Duration::from_secs(10);

/// The maximum number of different refusals that are remembered.
const REFUSALS_LIMIT: usize = 20;

/// The connections that a server was refused, each with the reason.
#[derive(Debug, Clone, Default)]
pub struct Refusals(Arc<Mutex<Refused>>);

#[derive(Debug, Default)]
struct Refused {
    /// The number of refusals so far.
    count: usize,
    /// Each different reason, with the number of its last refusal.
    reasons: Vec<(usize, String)>,
}

impl Refusals {
    fn with<T>(&self, act: impl FnOnce(&mut Refused) -> T) -> T {
        act(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Adds a refusal; returns whether its reason is new.
    fn add(&self, reason: &str) -> bool {
        self.with(|refused| {
            refused.count += 1;
            let count = refused.count;
            if let Some((last, _)) = refused.reasons.iter_mut().find(|(_, known)| known == reason) {
                *last = count;
                return false;
            }
            let has_room = refused.reasons.len() < REFUSALS_LIMIT;
            if has_room {
                refused.reasons.push((count, reason.to_owned()));
            }
            has_room
        })
    }

    /// Returns a mark for [`Refusals::since`].
    pub fn mark(&self) -> usize {
        self.with(|refused| refused.count)
    }

    /// Returns the reasons for refusals since a mark, as one text; empty if there are none.
    pub fn since(&self, mark: usize) -> String {
        self.with(|refused| {
            let recent = refused.reasons.iter().filter(|(last, _)| *last > mark);
            recent.map(|(_, reason)| reason.as_str()).collect::<Vec<_>>().join("; ")
        })
    }
}

/// Why a connection was not opened.
#[derive(Debug)]
enum Unopened {
    /// The entry does not allow it.
    Refused(String),
    /// It cannot be reached.
    Failed(String),
}

/// The proxy of one server.
pub(super) struct Relay {
    list: HostList,
    refusals: Refusals,
}

type Body = BoxBody<Bytes, hyper::Error>;

impl Relay {
    pub(super) fn new(list: HostList, refusals: Refusals) -> Self {
        Self { list, refusals }
    }

    /// Serves connections until `stop`.
    pub(super) async fn serve(self, handover: Handover, stop: CancellationToken) {
        let received = tokio::select! {
            received = handover.receive() => received,
            () = stop.cancelled() => return,
        };
        let listener = match received.and_then(TcpListener::from_std) {
            Ok(listener) => listener,
            Err(error) => {
                tracing::warn!(%error, "The proxy of a sealed MCP server was not started");
                return;
            }
        };
        let relay = Arc::new(self);
        connections::accept(listener, CONNECTIONS_LIMIT, stop, move |stream| {
            Arc::clone(&relay).serve_connection(stream)
        })
        .await;
    }

    async fn serve_connection(self: Arc<Self>, stream: TcpStream) {
        // A tunnel outlives the request that opened it, and belongs to this connection.
        let (tunnels, mut opened) = tokio::sync::mpsc::channel::<Tunnel>(1);
        let answer = service_fn(|request| {
            let (relay, tunnels) = (Arc::clone(&self), tunnels.clone());
            async move { Ok::<_, Infallible>(relay.answer(request, tunnels).await) }
        });
        let connection = hyper::server::conn::http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(HEAD_TIME)
            .serve_connection(TokioIo::new(stream), answer)
            .with_upgrades();
        // An error is the server's own: it closed the connection, or did not send HTTP.
        let _ = connection.await;
        if let Ok(tunnel) = opened.try_recv() {
            tunnel.copy().await;
        }
    }

    /// Answers one request: `CONNECT` (RFC 9110, section 9.3.6), or one with an absolute `http` URI.
    async fn answer(
        &self,
        request: Request<Incoming>,
        tunnels: tokio::sync::mpsc::Sender<Tunnel>,
    ) -> Response<Body> {
        let is_connect = request.method() == Method::CONNECT;
        let Some(url) = target(request.uri(), is_connect) else {
            let text = "this is a proxy of `pml`; it needs an absolute `http` address, or CONNECT";
            return text_response(StatusCode::BAD_REQUEST, text);
        };
        let upstream = match self.open(&url).await {
            Ok(upstream) => upstream,
            Err(Unopened::Refused(reason)) => {
                // Not each time: a server may try without end.
                if self.refusals.add(&reason) {
                    tracing::warn!("A sealed MCP server was refused a connection: {reason}");
                }
                return text_response(StatusCode::FORBIDDEN, &reason);
            }
            Err(Unopened::Failed(reason)) => {
                return text_response(StatusCode::BAD_GATEWAY, &reason);
            }
        };
        if is_connect {
            let upgrade = hyper::upgrade::on(request);
            // There is room: a connection has at most one tunnel.
            let _ = tunnels.try_send(Tunnel { upgrade, upstream });
            return Response::new(body(""));
        }
        forward(request, &url, upstream).await.unwrap_or_else(|error| {
            let text = format!("`{}` did not answer: {error}", shown(&url));
            text_response(StatusCode::BAD_GATEWAY, &text)
        })
    }

    /// Opens a connection, if the host and the address are allowed.
    async fn open(&self, url: &Url) -> Result<TcpStream, Unopened> {
        let shown = shown(url);
        if !self.list.hosts.iter().any(|pattern| pattern.covers(url)) {
            return Err(Unopened::Refused(self.list.refusal(&format!("`{shown}`"), &shown)));
        }
        let (Some(host), Some(port)) = (url.host(), url.port_or_known_default()) else {
            return Err(Unopened::Failed(format!("`{shown}` has no host")));
        };
        let failed = |why: &str| Unopened::Failed(format!("cannot connect to `{shown}`: {why}"));
        let addresses: Vec<SocketAddr> = match host {
            Host::Domain(name) => {
                let found =
                    tokio::time::timeout(CONNECT_TIME, tokio::net::lookup_host((name, port)));
                let found =
                    found.await.map_err(|_| failed("its name was not looked up in time"))?;
                found.map_err(|error| failed(&error.to_string()))?.collect()
            }
            Host::Ipv4(address) => vec![(IpAddr::V4(address), port).into()],
            Host::Ipv6(address) => vec![(IpAddr::V6(address), port).into()],
        };
        let (allowed, refused): (Vec<_>, Vec<_>) =
            addresses.into_iter().partition(|address| self.allows(url, address.ip()));
        if allowed.is_empty()
            && let Some(address) = refused.first()
        {
            let address = shown_address(*address, url);
            let what = format!("{address}, the private address of `{shown}`");
            return Err(Unopened::Refused(self.list.refusal(&what, &address)));
        }
        let mut last = failed("it has no address");
        for address in allowed {
            match tokio::time::timeout(CONNECT_TIME, TcpStream::connect(address)).await {
                Ok(Ok(stream)) => return Ok(stream),
                Ok(Err(error)) => last = failed(&error.to_string()),
                Err(_) => last = failed("it did not answer in time"),
            }
        }
        Err(last)
    }

    /// Returns whether an address of the host of `url`, which is allowed, may be connected to.
    fn allows(&self, url: &Url, address: IpAddr) -> bool {
        let address = address.to_canonical();
        if crate::addresses::is_public(address) {
            return true;
        }
        // RFC 6761, section 6.3: this name always denotes this machine.
        if url.host_str() == Some("localhost") && address.is_loopback() {
            return true;
        }
        // A listed name may lead to a private address unintentionally, so the address itself must be listed, too.
        let mut own = url.clone();
        own.set_ip_host(address).is_ok()
            && self.list.hosts.iter().any(|pattern| pattern.is_one_of(&own))
    }
}

/// A tunnel that was granted, before the server has the answer.
struct Tunnel {
    upgrade: hyper::upgrade::OnUpgrade,
    upstream: TcpStream,
}

impl Tunnel {
    /// Copies bytes in both directions until both sides are closed.
    async fn copy(mut self) {
        if let Ok(upgraded) = self.upgrade.await {
            let _ = tokio::io::copy_bidirectional(&mut TokioIo::new(upgraded), &mut self.upstream)
                .await;
        }
    }
}

/// Returns the address that a request is for.
fn target(uri: &Uri, is_connect: bool) -> Option<Url> {
    let authority = uri.authority()?;
    let url = match is_connect {
        true => {
            // The scheme only says which port is the usual one.
            let scheme = if authority.port_u16()? == 80 { "http" } else { "https" };
            Url::parse(&format!("{scheme}://{authority}")).ok()?
        }
        false if uri.scheme_str() == Some("http") => Url::parse(&uri.to_string()).ok()?,
        false => return None,
    };
    (url.username().is_empty() && url.password().is_none()).then_some(url)
}

/// Sends a request on, and returns the answer.
async fn forward(
    mut request: Request<Incoming>,
    url: &Url,
    upstream: TcpStream,
) -> Result<Response<Body>, hyper::Error> {
    let (mut sender, connection) =
        hyper::client::conn::http1::handshake(TokioIo::new(upstream)).await?;
    // It ends when the answer has been read, or with `sender`.
    tokio::spawn(connection);
    let path = request.uri().path_and_query().map_or("/", |path| path.as_str());
    *request.uri_mut() = path.parse().unwrap_or_else(|_| Uri::from_static("/"));
    remove_hop_by_hop(request.headers_mut());
    // The host that was checked, whatever the server wrote.
    if let Ok(host) = HeaderValue::from_str(&authority(url)) {
        request.headers_mut().insert(HOST, host);
    }
    let mut answer = sender.send_request(request).await?;
    remove_hop_by_hop(answer.headers_mut());
    Ok(answer.map(|body| body.boxed()))
}

/// Removes the fields that are for one connection only (RFC 9110, section 7.6.1).
fn remove_hop_by_hop(headers: &mut HeaderMap) {
    let named: Vec<HeaderName> = headers
        .get_all(CONNECTION)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .filter_map(|name| name.trim().parse().ok())
        .collect();
    let known = [CONNECTION, PROXY_AUTHORIZATION, TE, TRAILER, TRANSFER_ENCODING, UPGRADE];
    let old = ["keep-alive", "proxy-connection"].map(HeaderName::from_static);
    for name in named.into_iter().chain(known).chain(old) {
        headers.remove(name);
    }
}

/// Returns the host of a URL, with its port unless that is the usual one.
fn authority(url: &Url) -> String {
    let port = url.port().map(|port| format!(":{port}")).unwrap_or_default();
    format!("{}{port}", url.host_str().unwrap_or_default())
}

fn shown(url: &Url) -> String {
    protocol::escape_text(&authority(url)).to_string()
}

/// Returns an address as an entry lists it.
fn shown_address(address: SocketAddr, url: &Url) -> String {
    let mut own = url.clone();
    match own.set_ip_host(address.ip().to_canonical()) {
        Ok(()) => authority(&own),
        Err(()) => address.to_string(),
    }
}

fn body(text: &str) -> Body {
    Full::from(text.to_owned()).map_err(|never| match never {}).boxed()
}

fn text_response(status: StatusCode, text: &str) -> Response<Body> {
    let mut response = Response::new(body(&format!("pml: {text}\n")));
    *response.status_mut() = status;
    response
}

#[cfg(test)]
mod tests;
