use super::super::ListOf;
use super::*;
use crate::host_pattern::HostPattern;

fn relay(hosts: &[&str]) -> Relay {
    let hosts = hosts.iter().map(|host| HostPattern::new(host).unwrap()).collect();
    let hosts = HostList { hosts, of: ListOf::Entry };
    Relay::new(hosts, Refusals::default())
}

/// A private address has to be listed itself, so that nobody can point a listed name to it later.
#[test]
fn a_listed_name_does_not_allow_a_private_address() {
    for (hosts, url, address, allowed) in [
        (&["a.test"][..], "https://a.test/", "93.184.216.34", true),
        (&["a.test"], "https://a.test/", "10.1.2.3", false),
        (&["a.test"], "https://a.test/", "169.254.169.254", false),
        (&["a.test"], "https://a.test/", "::ffff:10.1.2.3", false),
        (&["a.test"], "https://a.test/", "fd00::1", false),
        (&["a.test"], "https://a.test/", "127.0.0.1", false),
        (&["a.test", "10.1.2.3"], "https://a.test/", "10.1.2.3", true),
        (&["a.test", "10.1.2.3"], "https://a.test/", "::ffff:10.1.2.3", true),
        (&["a.test", "10.1.2.3"], "https://a.test/", "10.1.2.4", false),
        (&["a.test:8443", "10.1.2.3"], "https://a.test:8443/", "10.1.2.3", false),
        (&["a.test:8443", "10.1.2.3:8443"], "https://a.test:8443/", "10.1.2.3", true),
        (&["*"], "https://a.test/", "10.1.2.3", false),
        (&["*"], "https://a.test/", "93.184.216.34", true),
        (&["localhost"], "http://localhost/", "127.0.0.1", true),
        (&["localhost"], "http://localhost/", "::1", true),
        (&["localhost"], "http://localhost/", "10.1.2.3", false),
        (&["10.1.2.3"], "http://10.1.2.3/", "10.1.2.3", true),
    ] {
        let url = Url::parse(url).unwrap();
        let address = address.parse().unwrap();
        assert_eq!(relay(hosts).allows(&url, address), allowed, "{hosts:?} {url} {address}");
    }
}

/// A host that is not listed is refused before it is looked up, so that no name carries anything away.
#[tokio::test]
async fn a_host_that_is_not_listed_is_not_looked_up() {
    let relay = relay(&["a.test"]);
    for url in ["https://secret.b.test/", "https://b.a.test/", "https://a.test:444/"] {
        let refused = relay.open(&Url::parse(url).unwrap()).await;
        assert!(matches!(refused, Err(Unopened::Refused(_))), "{url}: {refused:?}");
    }
}

#[test]
fn refusals_are_bounded_and_repeated() {
    let refusals = Refusals::default();
    for number in 0..2 * REFUSALS_LIMIT {
        assert_eq!(refusals.add(&number.to_string()), number < REFUSALS_LIMIT);
    }
    let mark = refusals.mark();
    assert_eq!(refusals.since(mark), "");
    assert!(!refusals.add("1"));
    assert_eq!(refusals.since(mark), "1");
    assert_eq!(refusals.since(0).split("; ").count(), REFUSALS_LIMIT);
}
