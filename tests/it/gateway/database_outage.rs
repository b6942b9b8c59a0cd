//! A database that is down, unresponsive or slow, as the clients of a gateway see it.

use std::collections::HashMap;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::identity::keys::call;
use crate::support::http::{HttpMcp, Reply, get, send};
use crate::support::mcp_client::Era;
use crate::support::relay::{Network, Relay};
use crate::support::server::{Installation, Server, Tenant};
use crate::support::{PATIENCE, poll, scaled};

/// A gateway whose connection to the database the test controls, and an administrator's key.
pub(crate) struct Setup {
    pub(crate) relay: Relay,
    pub(crate) gateway: Server,
    pub(crate) key: String,
    /// The gateway that runs the database. Its own connection is not affected.
    pub(crate) owner: Server,
}

impl Setup {
    pub(crate) fn new(settings: &[(&str, &str)]) -> Self {
        let owner = Installation::new().start();
        let key = owner.tenant_with_rights("execute,read,publish,admin").key;
        let relay = Relay::to(owner.installation());
        let url = relay.url();
        let master_key = owner.installation().data_dir().join("master.key");
        let mut all = vec![
            ("PML_DATABASE_URL", url.as_str()),
            ("PML_MASTER_KEY_FILE", master_key.to_str().unwrap()),
        ];
        all.extend(settings);
        let gateway = Installation::new().start_with(&all);
        Self { relay, gateway, key, owner }
    }

    pub(crate) fn ask(&self, method: &str, path: &str, body: Option<&Value>) -> Reply {
        call(&self.key, method, &format!("{}{path}", self.gateway.url()), body)
    }

    /// Creates a key of this name, with the name as `Idempotency-Key`.
    pub(crate) fn make_key(&self, name: &str) -> Reply {
        let authorization = format!("Bearer {}", self.key);
        let headers = [
            ("authorization", authorization.as_str()),
            ("content-type", "application/json"),
            ("idempotency-key", name),
        ];
        let body = json!({ "name": name, "can": ["read"] }).to_string().into_bytes();
        send("POST", &format!("{}/api/v1/keys", self.gateway.url()), &headers, Some(body))
    }

    /// Returns how many keys of each name the database has.
    pub(crate) fn made(&self) -> HashMap<String, usize> {
        let names = self.owner.installation().sql("select name from api_keys");
        let mut made = HashMap::new();
        for name in names.lines() {
            *made.entry(name.to_owned()).or_default() += 1;
        }
        made
    }
}

/// What an answer must never contain: queries, addresses, versions, names of components.
const INTERNALS: &[&str] = &[
    "select ",
    "insert ",
    "sqlx",
    "postgres",
    "pml_app",
    ".rs",
    "127.0.0.1",
    "0.1.0",
    "relation",
    "pool",
];

pub(crate) fn assert_no_internals(reply: &Reply, what: &str) {
    let text = String::from_utf8_lossy(&reply.body).to_lowercase();
    for internal in INTERNALS {
        assert!(!text.contains(internal), "{what}: `{internal}` in {text}");
    }
}

/// R-03, GW-26: during an outage of the database, requests get 503 with the error code and without internals, and
/// `/ready` fails. Afterwards the gateway recovers, and every acknowledged write is present exactly once.
#[test]
fn acknowledged_writes_survive_a_database_outage() {
    let setup = Setup::new(&[]);
    let done = AtomicBool::new(false);
    let acknowledged: Vec<String> = std::thread::scope(|scope| {
        let writers: Vec<_> = (0..4)
            .map(|writer| {
                let (setup, done) = (&setup, &done);
                scope.spawn(move || {
                    let mut acknowledged = Vec::new();
                    let mut count = 0;
                    while !done.load(Ordering::SeqCst) {
                        let name = format!("w{writer}-{count}");
                        count += 1;
                        let reply = setup.make_key(&name);
                        match reply.status {
                            201 => acknowledged.push(name),
                            503 => assert_no_internals(&reply, &name),
                            other => panic!("{other}: {}", reply.json()),
                        }
                    }
                    acknowledged
                })
            })
            .collect();
        for network in [Network::Down, Network::Blackhole, Network::Down] {
            let before = setup.made().len();
            poll("some writes", PATIENCE, || (setup.made().len() >= before + 5).then_some(()));
            setup.relay.set(network);
            // Authentication is cached for a second and rate limits are drawn in advance, so only the query itself
            // needs the database.
            let started = Instant::now();
            let reply = setup.ask("GET", "/api/v1/keys", None);
            let took = started.elapsed();
            assert_eq!(reply.status, 503, "{network:?}: {}", reply.json());
            assert_eq!(reply.json()["code"], "DATABASE_UNAVAILABLE");
            assert_eq!(reply.header("retry-after"), "1");
            let id = reply.header("x-request-id").to_owned();
            assert_eq!(reply.json()["instance"], format!("urn:uuid:{id}"));
            assert_no_internals(&reply, "the list of keys");
            // Two seconds are promised; a busy machine gets more.
            assert!(took < Duration::from_secs(20), "{network:?}: the error came after {took:?}");
            let ready = get(&format!("{}/ready", setup.gateway.url()), &[]);
            assert_eq!((ready.status, &ready.json()["checks"]["database"]), (503, &json!(false)));
            assert_eq!(get(&format!("{}/health", setup.gateway.url()), &[]).status, 200);
            setup.relay.set(Network::Normal);
            poll("the first success", PATIENCE, || {
                (setup.ask("GET", "/api/v1/keys", None).status == 200).then_some(())
            });
            poll("readiness", PATIENCE, || {
                (get(&format!("{}/ready", setup.gateway.url()), &[]).status == 200).then_some(())
            });
        }
        done.store(true, Ordering::SeqCst);
        writers.into_iter().flat_map(|writer| writer.join().unwrap()).collect()
    });
    let made = setup.made();
    assert!(acknowledged.len() > 10, "{}", acknowledged.len());
    for name in &acknowledged {
        assert_eq!(made.get(name), Some(&1), "{name} was acknowledged");
    }
    assert!(made.values().all(|count| *count == 1), "{made:?}");
}

/// A pseudo-random generator that gives the same numbers in every run.
struct Steps(u64);

impl Steps {
    fn below(&mut self, limit: u64) -> u64 {
        // A linear congruential generator with Knuth's MMIX constants. Its low bits are not random enough.
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit
    }
}

/// Sends a request and closes the connection after `patience`; returns what had arrived until then.
fn hang_up_after(patience: Duration, gateway: &str, request: &str) -> String {
    let address = gateway.strip_prefix("http://").unwrap();
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(patience.max(Duration::from_micros(1)))).unwrap();
    stream.write_all(request.as_bytes()).unwrap();
    let mut bytes = Vec::new();
    let mut piece = [0; 8 * 1024];
    while let Ok(count @ 1..) = stream.read(&mut piece) {
        bytes.extend(&piece[..count]);
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// P3: two tenants share two connections to a slow database, and clients disconnect during a query. No tenant ever
/// sees a row of the other, and the connections remain usable.
#[test]
fn a_client_disconnect_does_not_leak_its_tenant_to_the_next_request() {
    let setup = Setup::new(&[("PML_DATABASE_CONNECTIONS", "2")]);
    let other = setup.owner.tenant_with_rights("execute,read,publish,admin").key;
    let tenants = [("mine", &setup.key), ("theirs", &other)];
    for (name, key) in tenants {
        let body = json!({ "name": format!("only-{name}"), "can": ["read"] });
        let url = format!("{}/api/v1/keys", setup.gateway.url());
        assert_eq!(call(key, "POST", &url, Some(&body)).status, 201);
    }
    setup.relay.set(Network::Slow(Duration::from_millis(1)));
    let answered = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for seed in 0..4_u64 {
            let (setup, answered) = (&setup, &answered);
            scope.spawn(move || {
                let mut steps = Steps(seed);
                for _ in 0..scaled(1_000) {
                    let own = steps.below(2) as usize;
                    let (name, key) = tenants[own];
                    let (foreign, _) = tenants[1 - own];
                    let path = ["/api/v1/keys", "/api/v1/audit", "/mcp?limit=3", "/api/v1/secrets"];
                    let path = path[steps.below(4) as usize];
                    let request = format!(
                        "GET {path} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {key}\r\nconnection: close\r\n\r\n"
                    );
                    // One in ten waits for its answer, however busy the machine is.
                    let patience = match steps.below(10) {
                        0 => PATIENCE,
                        _ => Duration::from_micros(steps.below(60_000)),
                    };
                    let reply = hang_up_after(patience, setup.gateway.url(), &request);
                    assert!(!reply.contains(&format!("only-{foreign}")), "{name} {path}: {reply}");
                    if reply.contains(&format!("only-{name}")) {
                        answered.fetch_add(1, Ordering::SeqCst);
                    }
                }
            });
        }
    });
    setup.relay.set(Network::Normal);
    assert!(answered.load(Ordering::SeqCst) > 0, "no request was answered");
    poll("no transaction to be open", PATIENCE, || {
        let open = "select count(*) from pg_stat_activity where usename = 'pml_app' and state like 'idle in transaction%'";
        (setup.owner.installation().sql(open).trim() == "0").then_some(())
    });
    for round in 0..20 {
        let (name, key) = tenants[round % 2];
        let (foreign, _) = tenants[1 - round % 2];
        let reply = call(key, "GET", &format!("{}/api/v1/keys", setup.gateway.url()), None);
        let text = reply.json().to_string();
        assert_eq!(reply.status, 200, "{text}");
        assert!(
            text.contains(&format!("only-{name}")) && !text.contains(&format!("only-{foreign}")),
            "{text}"
        );
    }
}

/// If the database is too slow to count a call against the operator's quota, the call is refused, even within a
/// running program. Rate limits of requests do not refuse in this case, because the requests need the database anyway.
#[test]
fn calls_are_refused_when_their_quota_cannot_be_counted() {
    let setup = Setup::new(&[]);
    let allow = |calls| setup.owner.installation().run_ok(&["quotas", "set", "*", "json:*", calls]);
    let tenant = Tenant { key: setup.key.clone(), url: setup.gateway.url().to_owned() };
    let ask = || {
        let answer =
            HttpMcp::new(&tenant, Era::Stateless).call("json:parse", json!({ "data": "1" }));
        answer["structuredContent"]["error_code"].as_str().unwrap_or("none").to_owned()
    };
    for (calls, expected) in [("0/min", "RATE_LIMITED"), ("600/min", "none")] {
        allow(calls);
        poll("the quota to be known", PATIENCE, || (ask() == expected).then_some(()));
    }
    // Drawing from a quota has 600 ms, and each direction takes more than half of that. Other queries have seconds.
    setup.relay.set(Network::Slow(Duration::from_millis(310)));
    poll("the tokens that were drawn in advance to be used up", PATIENCE, || {
        (ask() == "DATABASE_UNAVAILABLE").then_some(())
    });
    setup.relay.set(Network::Normal);
    poll("calls to be counted again", PATIENCE, || (ask() == "none").then_some(()));
}
