use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::*;

fn private(hosts: &[&str]) -> PrivateHosts {
    try_private(hosts).unwrap()
}

fn try_private(hosts: &[&str]) -> Result<PrivateHosts, String> {
    let hosts: Vec<String> = hosts.iter().map(|host| (*host).to_owned()).collect();
    PrivateHosts::new(&hosts, Words { who: "the test", remedy: "list it".into() })
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
        allowed.allow("mcp.internal", ip("10.1.2.3")) && allowed.allow("mcp.internal.", ip("::1"))
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
            let _ = stream
                .write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\nconnection: close\r\n\r\n");
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
