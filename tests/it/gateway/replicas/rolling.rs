//! Gateways that are replaced one after the other while clients send requests.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use serde_json::json;

use super::load::{Answer, Kind, assert_effects, load};
use super::{Replicas, envelope, execute};
use crate::support::counter::Counter;
use crate::support::http::get;
use crate::support::{PATIENCE, has_full_counts, poll, scaled};

/// both gateways are stopped and started again, one after the other, under load. A gateway that stops is not ready
/// at once, serves on until the balancer has noticed, and exits with 0. No client gets an error, and every write and
/// call takes effect once.
#[test]
fn a_rolling_restart_under_load_loses_and_repeats_nothing() {
    let set = Replicas::start(&[("PML_DRAIN_SECONDS", "5")]);
    let counter = Counter::start();
    let tenant = set.tenant("execute,read,admin");
    set.publish(&counter);
    // In full: 100 requests a second for 5 minutes, while each gateway is replaced twice.
    let (rate, rounds) = (scaled(100).max(20), if has_full_counts() { 2 } else { 1 });
    let (began, rolled) = (Instant::now(), AtomicBool::new(false));
    let least = Duration::from_secs(scaled(300) as u64);
    let sent = std::thread::scope(|scope| {
        let load = scope.spawn(|| {
            load(&tenant, rate, || rolled.load(Ordering::SeqCst) && began.elapsed() >= least)
        });
        // Also if an assertion fails: the load would never end.
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            for _ in 0..rounds {
                for gateway in &set.gateways {
                    assert_eq!(gateway.ready().status, 200);
                    gateway.pid().signal("TERM");
                    let told = poll("the gateway to be unready", PATIENCE, || {
                        Some(gateway.ready()).filter(|reply| reply.status != 200)
                    });
                    assert_eq!((told.status, told.json()), (503, json!({ "status": "stopping" })));
                    assert_eq!(told.header("connection"), "close");
                    // It still serves whoever has not noticed.
                    let direct = gateway.direct(&tenant);
                    assert_eq!(get(&format!("{}/health", direct.url), &[]).status, 200);
                    let ran = envelope(&execute(&direct, &json!({ "code": "return 'still'" })));
                    assert_eq!(ran["result"], "still");
                    gateway.starts_again();
                }
            }
        }));
        rolled.store(true, Ordering::SeqCst);
        let sent = load.join().unwrap();
        if let Err(panic) = result {
            std::panic::resume_unwind(panic);
        }
        sent
    });
    let wrong: Vec<_> = sent.iter().filter(|request| !request.is_done()).collect();
    assert!(wrong.is_empty(), "{} of {}: {wrong:#?}", wrong.len(), sent.len());
    assert_effects(&sent, &set.cluster, &counter);
    let ended = "select id from executions where status = 'success'";
    let ids: Vec<&str> = sent
        .iter()
        .filter_map(|request| match &request.answer {
            Answer::Done(id) if request.kind == Kind::Program => Some(id.as_str()),
            _ => None,
        })
        .collect();
    // The end of a program is recorded shortly after its answer.
    poll("the records of all programs", PATIENCE, || {
        let recorded = set.cluster.sql(ended);
        ids.iter().all(|id| recorded.contains(id)).then_some(())
    });
}
