//! Protection against server-side request forgery: decides which addresses are connected to for a URL that somebody else
//! chose.
//!
//! The URL of a registry entry or of a program may lead to a machine in the network of whoever opens it. So connections
//! go only to public addresses; the operator of a gateway, or the user of `pml`, lists the hosts that are private on
//! purpose. A name is resolved once per connection, by [`GuardedResolver`], and the connection uses one of the
//! addresses that were checked, so a second look-up cannot return a different one (DNS rebinding).

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
#[derive(Debug, Clone, Copy)]
pub struct Words {
    /// Who does not connect.
    pub who: &'static str,
    /// How a host can be allowed, as the rest of a sentence.
    pub remedy: &'static str,
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
        let Words { who, remedy } = self.words;
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
mod tests {
    use std::io::{Read as _, Write as _};
    use std::net::TcpListener;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    fn private(hosts: &[&str]) -> PrivateHosts {
        try_private(hosts).unwrap()
    }

    fn try_private(hosts: &[&str]) -> Result<PrivateHosts, String> {
        let hosts: Vec<String> = hosts.iter().map(|host| (*host).to_owned()).collect();
        PrivateHosts::new(&hosts, Words { who: "the test", remedy: "list it" })
    }

    fn client(resolver: GuardedResolver) -> reqwest::Client {
        #[expect(
            clippy::disallowed_methods,
            reason = "the clients of both programs use the resolver in this way"
        )]
        let builder = reqwest::Client::builder();
        builder.no_proxy().dns_resolver(Arc::new(resolver)).build().unwrap()
    }

    /// SE-13: addresses of every class that is not public, in every spelling that a URL can have.
    #[test]
    fn private_addresses_are_refused_in_every_spelling() {
        let none = private(&[]);
        for host in [
            "127.0.0.1",
            "127.1",
            "0177.0.0.1",
            "0x7f.0.0.1",
            "2130706433",
            "0x7f000001",
            "017700000001",
            "127.255.255.254",
            "0.0.0.0",
            "0",
            "0.1.2.3",
            "10.0.0.1",
            "172.16.0.1",
            "172.31.255.255",
            "192.168.1.1",
            "169.254.169.254",
            "0xa9fea9fe",
            "2852039166",
            "100.64.0.1",
            "100.127.255.255",
            "100.100.100.200",
            "168.63.129.16",
            "192.0.0.1",
            "192.0.2.1",
            "192.88.99.1",
            "198.18.0.1",
            "198.51.100.1",
            "203.0.113.1",
            "224.0.0.1",
            "240.0.0.1",
            "255.255.255.255",
            "[::]",
            "[::1]",
            "[0:0:0:0:0:0:0:1]",
            "[::ffff:127.0.0.1]",
            "[::ffff:7f00:1]",
            "[::127.0.0.1]",
            "[::ffff:0:127.0.0.1]",
            "[::ffff:169.254.169.254]",
            "[64:ff9b::7f00:1]",
            "[64:ff9b::169.254.169.254]",
            "[64:ff9b:1::10.0.0.1]",
            "[2002:7f00:1::]",
            "[2002:a00:1::1]",
            "[fc00::1]",
            "[fd12:3456::1]",
            "[fd00:ec2::254]",
            "[fe80::1]",
            "[fec0::1]",
            "[ff02::1]",
            "[2001:db8::1]",
            "[2001::1]",
            "[100::1]",
            "[3fff::1]",
        ] {
            let refused = none.check(&format!("http://{host}/mcp")).expect_err(host);
            assert!(refused.ends_with("; list it"), "{host}: {refused}");
        }
        // Public addresses next to those ranges are accepted.
        for host in [
            "8.8.8.8",
            "1.1.1.1",
            "172.15.0.1",
            "172.32.0.1",
            "100.63.0.1",
            "100.128.0.1",
            "198.17.0.1",
            "[2606:4700:4700::1111]",
            "[64:ff9b::808:808]",
            "[::ffff:8.8.8.8]",
            "[2002:808:808::1]",
            "example.com",
        ] {
            none.check(&format!("https://{host}/mcp")).expect(host);
        }
        for url in [
            "ftp://8.8.8.8/",
            "file:///etc/passwd",
            "http://user@8.8.8.8/",
            "http://u:p@8.8.8.8/",
            "x",
            "",
        ] {
            none.check(url).expect_err(url);
        }
    }

    #[test]
    fn only_listed_private_hosts_are_allowed() {
        let allowed = private(&["127.0.0.1", "MCP.Internal", "[fd12::1]", "169.254.10.1"]);
        for host in ["127.0.0.1", "2130706433", "[::ffff:127.0.0.1]", "[fd12::1]", "169.254.10.1"] {
            allowed.check(&format!("http://{host}/")).expect(host);
        }
        for host in ["127.0.0.2", "10.0.0.1", "[::1]", "[fd12::2]", "169.254.169.254"] {
            allowed.check(&format!("http://{host}/")).expect_err(host);
        }
        let ip = |text: &str| text.parse::<IpAddr>().unwrap();
        assert!(
            allowed.allow("mcp.internal", ip("10.1.2.3"))
                && allowed.allow("mcp.internal.", ip("::1"))
        );
        assert!(
            !allowed.allow("other.internal", ip("10.1.2.3"))
                && allowed.allow("other.internal", ip("8.8.8.8"))
        );
        // Even a listed name may not resolve to the metadata service, which has credentials of the machine.
        assert!(!allowed.allow("mcp.internal", ip("169.254.169.254")));
        assert!(!private(&[""]).allow("", ip("127.0.0.1")));
    }

    /// Starts a server on loopback that counts its connections.
    fn server() -> (u16, Arc<AtomicUsize>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let visits = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&visits);
        std::thread::spawn(move || {
            for mut stream in listener.incoming().flatten() {
                count.fetch_add(1, Ordering::SeqCst);
                let _ = stream.read(&mut [0; 1_024]);
                let _ = stream.write_all(
                    b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\nconnection: close\r\n\r\n",
                );
            }
        });
        (port, visits)
    }

    /// GW-17, SE-13: a name that resolves to another address at the second look-up reaches no private address.
    #[tokio::test]
    async fn dns_rebinding_reaches_no_private_address() {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let (port, visits) = server();
        let look_ups = Arc::new(AtomicUsize::new(0));
        let visit = async |private: PrivateHosts| {
            let count = Arc::clone(&look_ups);
            let resolver = GuardedResolver::with_look_up(private, move |_| {
                // An unusable address first, then this machine.
                let first = count.fetch_add(1, Ordering::SeqCst).is_multiple_of(2);
                let address = if first { "0.0.0.0:0" } else { "127.0.0.1:0" };
                Box::pin(async move { Ok(vec![address.parse().unwrap()]) })
            });
            let client = client(resolver);
            let mut answers = Vec::new();
            for _ in 0..2 {
                let sent = client.get(format!("http://rebind.example:{port}/")).send().await;
                answers.push(
                    sent.map(|reply| reply.status().as_u16()).map_err(|error| format!("{error:?}")),
                );
            }
            answers
        };
        for answer in visit(private(&[])).await {
            assert!(answer.unwrap_err().contains("PrivateAddress"));
        }
        assert_eq!((visits.load(Ordering::SeqCst), look_ups.load(Ordering::SeqCst)), (0, 2));
        // If the operator lists the name, it reaches this machine, but still not the unusable address.
        let answers = visit(private(&["rebind.example"])).await;
        assert!(answers[0].is_err() && answers[1] == Ok(200), "{answers:?}");
        assert_eq!((visits.load(Ordering::SeqCst), look_ups.load(Ordering::SeqCst)), (1, 4));
    }

    /// The same with the system's resolver.
    #[tokio::test]
    async fn localhost_is_refused_unless_listed() {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let (port, visits) = server();
        let client = |private: PrivateHosts| self::client(GuardedResolver::new(private));
        let url = format!("http://localhost:{port}/");
        client(private(&[])).get(&url).send().await.unwrap_err();
        assert_eq!(visits.load(Ordering::SeqCst), 0);
        let allowed = private(&["localhost"]);
        assert_eq!(client(allowed).get(&url).send().await.unwrap().status(), 200);
    }

    #[test]
    fn an_item_that_is_not_just_a_host_is_refused_with_the_host_to_write() {
        let new = |host: &str| try_private(&[host]);
        for host in ["db.internal", "DB.internal.", "10.1.2.3", "::1", "[::1]", " localhost "] {
            assert!(new(host).is_ok(), "{host}");
        }
        for (host, instead) in [
            ("db.internal:8080", "`db.internal`"),
            ("10.1.2.3:80", "`10.1.2.3`"),
            ("[::1]:80", "`::1`"),
            ("http://db.internal/mcp", "`db.internal`"),
            ("db.internal/mcp", "`db.internal`"),
            ("10.0.0.0/8", "`10.0.0.0`"),
        ] {
            let refused = new(host).unwrap_err();
            assert!(
                refused.contains(host) && refused.contains(&format!("write {instead}")),
                "{refused}"
            );
        }
        for host in ["*.internal", "a b", "user@db.internal", "db.internal:x"] {
            assert!(new(host).unwrap_err().contains("is not a host"), "{host}");
        }
    }
}
