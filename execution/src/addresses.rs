//! Protection against server-side request forgery: decides which addresses are connected to for a URL that somebody else
//! chose.
//!
//! The URL of a registry entry or of a program may lead to a machine in the network of whoever opens it. So connections
//! go only to public addresses; the operator of a gateway, or the user of `pml`, lists the hosts that are private on
//! purpose. A name is resolved once per connection, by [`GuardedResolver`], and the connection uses one of the
//! addresses that were checked, so a second look-up cannot return a different one (DNS rebinding).

use std::borrow::Cow;
use std::collections::HashSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;

use futures::future::BoxFuture;
use reqwest::Url;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};

/// The class of an address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Reach {
    /// Globally reachable.
    Public,
    /// Of this machine or of a private network; allowed for hosts that are listed.
    Private,
    /// The metadata services of clouds, and addresses that no server can have. Allowed only if the
    /// address itself is listed.
    Never,
}

/// The hosts that are allowed although their addresses are private, written as in URLs.
#[derive(Debug, Clone)]
pub struct PrivateHosts {
    hosts: Arc<HashSet<String>>,
    words: Words,
}

/// The words of a refusal.
#[derive(Debug, Clone)]
pub struct Words {
    /// Who does not connect.
    pub who: &'static str,
    /// How a host can be allowed, as the rest of a sentence.
    pub remedy: Cow<'static, str>,
}

/// A connection that was refused because the address is private. Its text names the host and the remedy.
#[derive(Debug)]
pub struct PrivateAddress(String);

impl std::fmt::Display for PrivateAddress {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for PrivateAddress {}

impl PrivateHosts {
    /// Parses a list of hosts. Different spellings of one address are equal.
    ///
    /// # Errors
    /// Returns an error for an item that is not just a host, with the host to write instead: the item would never
    /// match.
    pub fn new(hosts: &[String], words: Words) -> Result<Self, String> {
        let named = hosts.iter().map(|host| host.trim()).filter(|host| !host.is_empty());
        let named: Result<_, _> =
            named.map(|host| check_host(host).map(|()| plain(host))).collect();
        named.map(|hosts| Self { hosts: Arc::new(hosts), words })
    }

    fn contains(&self, host: &str) -> bool {
        self.hosts.contains(&plain(host))
    }

    /// Returns whether an address of this host may be connected to.
    fn allow(&self, host: &str, address: IpAddr) -> bool {
        match reach(address) {
            Reach::Public => true,
            Reach::Private => self.contains(host),
            // A listed name may resolve to such an address unintentionally, so only the address itself counts.
            Reach::Never => {
                plain(host).parse() == Ok(address.to_canonical()) && self.contains(host)
            }
        }
    }

    /// Checks a URL as far as possible without a look-up.
    ///
    /// # Errors
    /// Returns why it is not opened.
    pub fn check(&self, url: &str) -> Result<Url, String> {
        let url = Url::parse(url).map_err(|_| "its address is not a URL".to_owned())?;
        if !matches!(url.scheme(), "http" | "https") {
            return Err("its address is neither `http` nor `https`".to_owned());
        }
        // Whoever can see an entry or a plan sees its addresses, so they must not contain a credential.
        if !url.username().is_empty() || url.password().is_some() {
            return Err("its address contains a user name or a password".to_owned());
        }
        let host = url.host_str().ok_or("its address has no host")?;
        // An address needs no look-up, so `GuardedResolver` never sees it: this is its only check.
        // `Url` has already normalized decimal, octal and hexadecimal spellings of addresses.
        match plain(host).parse::<IpAddr>() {
            Ok(address) if !self.allow(host, address) => Err(self.refusal(host)),
            // A name is checked when it is resolved, at each connection.
            _ => Ok(url),
        }
    }

    /// Returns the message for a refused host, with the remedy.
    fn refusal(&self, host: &str) -> String {
        let Words { who, remedy } = &self.words;
        format!("{who} does not connect to the private address of `{host}`; {remedy}")
    }
}

/// Checks that a text is a host, without a scheme, port or path.
fn check_host(text: &str) -> Result<(), String> {
    let bare = text.strip_prefix('[').and_then(|text| text.strip_suffix(']')).unwrap_or(text);
    if bare.parse::<IpAddr>().is_ok() {
        return Ok(());
    }
    let shown = protocol::escape_text(text);
    // `db.internal:8080` is a URL, too: with the scheme `db.internal` and without a host.
    let instead = match Url::parse(text).ok().filter(Url::has_host) {
        Some(url) => url.host_str().map(str::to_owned),
        None => Url::parse(&format!("http://{text}"))
            .ok()
            .filter(|url| url.path() == "/" || text.contains('/'))
            .and_then(|url| url.host_str().map(str::to_owned)),
    };
    match instead {
        Some(host)
            if !text.contains('*')
                && text.trim_end_matches('.').eq_ignore_ascii_case(host.trim_end_matches('.')) =>
        {
            Ok(())
        }
        Some(host) if !text.contains('@') && !text.contains('*') => Err(format!(
            "`{shown}` is not just a host; write `{}`, which covers all of its ports",
            host.trim_matches(['[', ']'])
        )),
        _ => Err(format!(
            "`{shown}` is not a host; write a name or an address, without port and path"
        )),
    }
}

/// Returns a host in lower case without a trailing dot, or an address in canonical form without brackets.
fn plain(host: &str) -> String {
    let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    match bare.parse::<IpAddr>() {
        Ok(address) => address.to_canonical().to_string(),
        // With and without a trailing dot, a name denotes the same host in DNS.
        Err(_) => bare.trim_end_matches('.').to_ascii_lowercase(),
    }
}

/// Returns whether an address is globally reachable: not of this machine, of a private network, or of a cloud's metadata
/// service.
pub fn is_public(address: IpAddr) -> bool {
    reach(address) == Reach::Public
}

fn reach(address: IpAddr) -> Reach {
    match address {
        IpAddr::V4(address) => reach_v4(address),
        IpAddr::V6(address) => reach_v6(address),
    }
}

fn reach_v4(address: Ipv4Addr) -> Reach {
    let [a, b, c, d] = address.octets();
    // Exceptions come before their ranges: 100.100.100.200 is in 100.64.0.0/10.
    match (a, b, c, d) {
        // Link-local, with the metadata service of most clouds; Alibaba's and Azure's are elsewhere.
        (169, 254, ..) | (100, 100, 100, 200) | (168, 63, 129, 16) => Reach::Never,
        // "This network", multicast, reserved, broadcast.
        (0 | 224..=255, ..) => Reach::Never,
        (10 | 127, ..) | (172, 16..=31, ..) | (192, 168, ..) => Reach::Private,
        // Carrier-grade NAT (RFC 6598), also used by overlay networks.
        (100, 64..=127, ..) => Reach::Private,
        // Protocol assignments, documentation, 6to4 relays, benchmarks.
        (192, 0, 0 | 2, _) | (192, 88, 99, _) | (198, 18 | 19, ..) => Reach::Never,
        (198, 51, 100, _) | (203, 0, 113, _) => Reach::Never,
        _ => Reach::Public,
    }
}

fn reach_v6(address: Ipv6Addr) -> Reach {
    // First: a translator or tunnel connects to the embedded address.
    if let Some(inner) = inner_v4(address) {
        return reach_v4(inner);
    }
    let segments = address.segments();
    match segments[0] {
        _ if address.is_loopback() => Reach::Private,
        // Amazon's metadata service.
        0xfd00 if segments[1] == 0x0ec2 => Reach::Never,
        0xfc00..=0xfdff => Reach::Private,
        // Documentation, Teredo and other assignments to protocols.
        0x2001 if segments[1] == 0x0db8 || segments[1] < 0x0200 => Reach::Never,
        0x3fff if segments[1] < 0x1000 => Reach::Never,
        // The only allocated global range (2000::/3); link-local, site-local and multicast are outside of it.
        0x2000..=0x3fff => Reach::Public,
        _ => Reach::Never,
    }
}

/// Returns the IPv4 address that is embedded in an IPv6 one, if there is one.
fn inner_v4(address: Ipv6Addr) -> Option<Ipv4Addr> {
    let s = address.segments();
    let of =
        |high: u16, low: u16| Some(Ipv4Addr::from_bits((u32::from(high) << 16) | u32::from(low)));
    match s {
        // Mapped, translated (RFC 2765, RFC 6052, RFC 8215), and compatible, but not `::` and `::1`.
        [0, 0, 0, 0, 0, 0xffff, high, low] | [0, 0, 0, 0, 0xffff, 0, high, low] => of(high, low),
        [0x64, 0xff9b, 0, 0, 0, 0, high, low] | [0x64, 0xff9b, 1, _, _, _, high, low] => {
            of(high, low)
        }
        [0, 0, 0, 0, 0, 0, high, low] if (high, low) > (0, 1) => of(high, low),
        // 6to4.
        [0x2002, high, low, ..] => of(high, low),
        _ => None,
    }
}

/// A function that looks up a name.
type LookUp = dyn Fn(String) -> BoxFuture<'static, std::io::Result<Vec<SocketAddr>>> + Send + Sync;

/// A DNS resolver that returns only permitted addresses.
#[derive(Clone)]
pub struct GuardedResolver {
    private: PrivateHosts,
    look_up: Arc<LookUp>,
}

impl GuardedResolver {
    /// Creates a resolver that asks the system's.
    pub fn new(private: PrivateHosts) -> Self {
        Self::with_look_up(private, |host| {
            // The HTTP client replaces port 0 by the port of the URL.
            Box::pin(async move { Ok(tokio::net::lookup_host((host, 0)).await?.collect()) })
        })
    }

    fn with_look_up(
        private: PrivateHosts,
        look_up: impl Fn(String) -> BoxFuture<'static, std::io::Result<Vec<SocketAddr>>>
        + Send
        + Sync
        + 'static,
    ) -> Self {
        Self { private, look_up: Arc::new(look_up) }
    }
}

impl Resolve for GuardedResolver {
    fn resolve(&self, name: Name) -> Resolving {
        let host = name.as_str().to_owned();
        let (private, found) = (self.private.clone(), (self.look_up)(host.clone()));
        Box::pin(async move {
            let mut addresses = found.await?;
            // The client connects to one of these addresses, without another look-up.
            addresses.retain(|address| private.allow(&host, address.ip()));
            if addresses.is_empty() {
                return Err(PrivateAddress(private.refusal(&host)).into());
            }
            Ok(Box::new(addresses.into_iter()) as Addrs)
        })
    }
}

#[cfg(test)]
mod tests;
