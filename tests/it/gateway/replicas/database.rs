//! A Postgres behind two gateways that is restarted, or fails over to its standby.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use serde_json::json;

use super::Replicas;
use super::load::{Answer, Sent, assert_effects, load};
use crate::identity::keys::call;
use crate::support::counter::Counter;
use crate::support::server::Tenant;
use crate::support::{PATIENCE, has_full_counts, poll, scaled};

/// How soon clients are answered during an outage: two seconds by a gateway, and half a second by the balancer.
const MAX_ANSWER: Duration = Duration::from_millis(2_500);
/// How soon requests succeed after the database is ready.
const MAX_RECOVERY: Duration = Duration::from_secs(5);
/// What a machine that runs other tests may take in addition.
const BUSY: Duration = Duration::from_secs(15);

/// Sends load through the balancer while `outage` takes the database away and brings it back.
///
/// Every request is done or refused in the form that clients expect. Returns the requests.
#[expect(clippy::print_stderr, reason = "the durations are of interest when a test runs alone")]
fn through(tenant: &Tenant, outage: impl FnOnce() -> Instant) -> Vec<Sent> {
    let stop = AtomicBool::new(false);
    let (sent, back) = std::thread::scope(|scope| {
        let load = scope.spawn(|| load(tenant, scaled(200), || stop.load(Ordering::SeqCst)));
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let back = outage();
            let works = || {
                let url = format!("{}/api/v1/keys", tenant.url);
                call(&tenant.key, "GET", &url, None).status == 200
            };
            // Several in a row, so that both gateways have answered.
            poll("both gateways to serve again", PATIENCE, || {
                (0..6).all(|_| works()).then_some(())
            });
            back
        }));
        stop.store(true, Ordering::SeqCst);
        let sent = load.join().unwrap();
        (sent, result.unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
    });
    let refused = sent.iter().filter(|request| request.answer == Answer::Unavailable);
    assert!(refused.clone().count() > 0, "the outage was not noticed");
    for request in &sent {
        assert!(!matches!(request.answer, Answer::Wrong(_)), "{request:#?}");
    }
    let longest = sent.iter().max_by_key(|request| request.took).unwrap();
    assert!(longest.took < MAX_ANSWER + BUSY, "{longest:#?}");
    let last = refused.map(|request| request.began).max().unwrap();
    let late = last.saturating_duration_since(back);
    eprintln!("longest answer {:?}, refused until {late:?} after it was ready", longest.took);
    assert!(late < MAX_RECOVERY + BUSY, "refused {late:?} after the database was ready");
    sent
}

fn set_up(counter: &Counter) -> (Replicas, Tenant) {
    let set = Replicas::start(&[]);
    let tenant = set.tenant("execute,read,admin");
    set.publish(counter);
    (set, tenant)
}

/// Asserts that both gateways learn of changes again.
#[track_caller]
fn assert_followed(set: &Replicas, tenant: &Tenant) {
    set.operator.run(&["routing", "set", "acme_docs:*", "server"]);
    for gateway in &set.gateways {
        let direct = gateway.direct(tenant);
        poll("the rule", PATIENCE, || {
            let url = format!("{}/api/v1/routing", direct.url);
            call(&direct.key, "GET", &url, None)
                .json()
                .to_string()
                .contains("acme_docs")
                .then_some(())
        });
    }
}

/// Postgres crashes under load and is started again. Clients behind the balancer get 503 with the error code, although
/// no gateway is ready, and are served as soon as it is back. Nothing is lost or repeated.
#[test]
fn clients_behind_the_balancer_see_a_database_restart_as_typed_errors() {
    let counter = Counter::start();
    let (set, tenant) = set_up(&counter);
    let sent = through(&tenant, || {
        poll("some load", PATIENCE, || (counter.count() > 5).then_some(()));
        set.cluster.crash();
        for gateway in &set.gateways {
            let ready = poll("the gateway to be unready", PATIENCE, || {
                Some(gateway.ready()).filter(|reply| reply.status == 503)
            });
            assert_eq!(ready.json()["checks"]["database"], false);
        }
        let down = Duration::from_secs(if has_full_counts() { 30 } else { 2 });
        let since = Instant::now();
        poll("the outage to last", down * 2, || (since.elapsed() > down).then_some(()));
        set.cluster.serve();
        Instant::now()
    });
    assert_effects(&sent, &set.cluster, &counter);
    assert_followed(&set, &tenant);
}

/// The primary is lost under load, and its standby is promoted. While it is a standby, it counts as unavailable. No
/// acknowledged write is lost, because commits wait for the standby.
#[test]
fn a_failover_to_a_standby_loses_nothing() {
    let counter = Counter::start();
    let (set, tenant) = set_up(&counter);
    let standby = set.cluster.standby();
    let sent = through(&tenant, || {
        poll("some load", PATIENCE, || (counter.count() > 5).then_some(()));
        set.cluster.crash();
        set.proxy.switch(&standby);
        for gateway in &set.gateways {
            let ready = poll("the gateway to be unready", PATIENCE, || {
                Some(gateway.ready()).filter(|reply| reply.status == 503)
            });
            assert_eq!(ready.json()["checks"]["database"], false);
            let direct = gateway.direct(&tenant);
            let read = call(&direct.key, "GET", &format!("{}/api/v1/keys", direct.url), None);
            let code = read.json()["code"].clone();
            assert_eq!((read.status, code), (503, json!("DATABASE_UNAVAILABLE")));
        }
        standby.promote();
        Instant::now()
    });
    assert_effects(&sent, &standby, &counter);
    assert_followed(&set, &tenant);
}
