//! A gateway that is told to stop while it works.

use std::net::TcpStream;
use std::time::{Duration, Instant};

use serde_json::json;

use super::{Replicas, envelope, execute};
use crate::proxy::messages::{ProxyClient, Raw};
use crate::support::counter::Counter;
use crate::support::mcp_client::Era;
use crate::support::upstream::{Entry, Everything};
use crate::support::{PATIENCE, poll, scaled};

/// after `SIGTERM`, no connection is accepted, streams that wait for messages end so that clients resume them on the
/// other gateway, programs end, and those that take longer than the grace time are cancelled, and told so. All of them are
/// recorded, with their traces.
#[test]
fn a_stopping_gateway_ends_what_it_has_begun() {
    let set = Replicas::start(&[]);
    let (counter, upstream) = (Counter::start(), Everything::start());
    let tenant = set.tenant("execute,read,admin");
    set.publish(&counter);
    set.cluster.sql(&Entry::http("it.web", "asks", &upstream.url).statements());
    let [here, there] = set.gateways.each_ref().map(|gateway| gateway.direct(&tenant));
    let program = |then: serde_json::Value| {
        let code = format!("return await mcp.counter.add({{ then: {then} }})");
        let tenant = here.clone();
        std::thread::spawn(move || envelope(&execute(&tenant, &json!({ "code": code }))))
    };
    let [proxied, elsewhere] = [&here, &there].map(|tenant| ProxyClient::new(tenant, "asks"));
    let mut streams: Vec<(String, Raw)> = (0..scaled(100))
        .map(|_| {
            let session = proxied.initialize("2025-11-25");
            let within =
                [("mcp-session-id", session.as_str()), ("mcp-protocol-version", "2025-11-25")];
            let mut stream = Raw::open(&proxied, "GET", &within, None);
            stream.until("text/event-stream");
            (session, stream)
        })
        .collect();
    let short: Vec<_> = (0..scaled(40).max(8)).map(|_| program(json!(4_000))).collect();
    let long: Vec<_> = (0..4).map(|_| program(json!("never"))).collect();
    // An answer that is a stream of events, because the client asked for progress.
    let params = json!({ "name": "counter:add", "arguments": { "then": 4_000 },
        "_meta": { "progressToken": "p" } });
    let body = Era::Handshake.request(1, "tools/call", params).to_string();
    let client = ProxyClient { url: format!("{}/mcp", here.url), key: here.key.clone() };
    let mut progress =
        Raw::open(&client, "POST", &[("mcp-protocol-version", "2025-11-25")], Some(&body));
    let all = short.len() + long.len();
    poll("all programs to call", PATIENCE, || (counter.count() == all + 1).then_some(()));

    let [stopping, _] = &set.gateways;
    let told = Instant::now();
    stopping.pid().signal("TERM");
    poll("no connection to be accepted", PATIENCE, || {
        TcpStream::connect(&stopping.address).is_err().then_some(())
    });
    poll("the streams to end", PATIENCE, || {
        streams.iter_mut().all(|(_, stream)| stream.has_ended()).then_some(())
    });
    assert!(told.elapsed() < Duration::from_secs(15), "not at the end of the grace time only");
    for (session, _) in &streams {
        let within = [("mcp-session-id", session.as_str()), ("mcp-protocol-version", "2025-11-25")];
        Raw::open(&elsewhere, "GET", &within, None).until("text/event-stream");
    }
    progress.until("call ");
    for program in short {
        assert_eq!(program.join().unwrap()["status"], "success");
    }
    for program in long {
        let cancelled = program.join().unwrap();
        assert_eq!(cancelled["error_code"], "CANCELLED", "{cancelled:#}");
    }
    assert_eq!(stopping.ended(), Some(0), "{}", stopping.log());
    let by_status = "select e.status, count(*), count(t.run_id) from executions e
        left join traces t on t.run_id = e.id group by 1 order by 1";
    let recorded = set.cluster.sql(by_status);
    let expected = format!("cancelled|4|4\nsuccess|{0}|{0}\n", all - 4);
    assert_eq!(recorded, expected, "{}", stopping.log());
    assert_eq!(counter.count(), all + 1);
}
