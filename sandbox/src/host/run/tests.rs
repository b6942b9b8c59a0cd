//! A compromised child can send anything. It must not harm the host.

use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;

use super::*;

/// Answers every call at once and counts them.
#[derive(Default)]
struct Counting(AtomicUsize);

impl ToolCaller for Counting {
    fn call(
        &self,
        call: ToolCall,
        _cancel: CancellationToken,
    ) -> BoxFuture<'static, Result<Value, CallError>> {
        self.0.fetch_add(1, Ordering::SeqCst);
        Box::pin(async move { Ok(call.args) })
    }
}

fn limits() -> Limits {
    Limits {
        calls: 3,
        argument_bytes: 1000,
        result_bytes: 1000,
        console_bytes: 10,
        wall: Duration::from_secs(20),
        ..Limits::server()
    }
}

fn framed(body: &str) -> Vec<u8> {
    let mut bytes = u32::try_from(body.len()).expect("short").to_le_bytes().to_vec();
    bytes.extend_from_slice(body.as_bytes());
    bytes
}

struct Seen {
    ending: Ending,
    started: usize,
    calls: u64,
    console: Vec<ConsoleLine>,
    truncated: bool,
}

/// Returns the host's end of a socket, and the child's.
fn pair() -> (ChildSocket, UnixStream) {
    let (ours, theirs) = UnixStream::pair().expect("a pair");
    (
        ChildSocket::new(ours.into_std().expect("it has a descriptor"))
            .expect("it can be waited for"),
        theirs,
    )
}

/// Connects the host to a peer that sends `bytes`, reads everything, and closes on request.
async fn against(bytes: Vec<u8>, closes: bool) -> Seen {
    let (ours, theirs) = pair();
    let peer = async move {
        let (mut from_host, mut to_host) = theirs.into_split();
        // The host may close its end while this side still writes.
        let _ = to_host.write_all(&bytes).await;
        if closes {
            drop(to_host);
            let _ = tokio::io::copy(&mut from_host, &mut tokio::io::sink()).await;
        } else {
            let mut sink = [0; 4096];
            while from_host.read(&mut sink).await.is_ok_and(|count| count > 0) {}
            drop(to_host);
        }
    };
    let peer = tokio::spawn(peer);
    let tools = Arc::new(Counting::default());
    let cancel = CancellationToken::new();
    let limits = limits();
    let mut inbox = Inbox::default();
    let mut run = Run::new(&ours, &limits, Arc::clone(&tools) as _, &cancel);
    let program = Program::default();
    let drive = run.drive(&program, &mut inbox, || Some(Duration::ZERO), || (), &cancel);
    let ending =
        tokio::time::timeout(Duration::from_secs(10), drive).await.expect("the host ends it");
    let seen = Seen {
        ending,
        started: tools.0.load(Ordering::SeqCst),
        calls: run.calls,
        console: std::mem::take(&mut run.console),
        truncated: run.console_truncated,
    };
    drop(run);
    drop(ours);
    peer.await.expect("no panic");
    seen
}

async fn broken(bytes: Vec<u8>) -> Seen {
    let seen = against(bytes, false).await;
    assert!(matches!(seen.ending, Ending::Broken(_)), "{:?}", seen.ending);
    seen
}

fn call(id: u64) -> Vec<u8> {
    framed(&format!(r#"{{"type":"rpc_call","id":{id},"namespace":"a","action":"b","args":{{}}}}"#))
}

#[tokio::test]
async fn accepts_an_honest_child() {
    let done = framed(r#"{"type":"execution_complete","ok":true,"value":{"a":[1]}}"#);
    let seen = against([call(1), call(2), call(3), done].concat(), false).await;
    assert!(matches!(seen.ending, Ending::Complete(Ok(ref value)) if *value == json!({"a": [1]})));
    assert_eq!(seen.calls, 3);
}

#[tokio::test]
async fn a_length_over_the_cap_breaks_the_protocol() {
    broken(u32::MAX.to_le_bytes().to_vec()).await;
    let cap = u32::try_from(limits().frame_from_child()).expect("small");
    broken((cap + 1).to_le_bytes().to_vec()).await;
}

#[tokio::test]
async fn garbage_breaks_the_protocol() {
    for body in
        ["", "{", "null", "\u{0}\u{0}", r#"{"type":"format_disk"}"#, r#"{"type":"execute"}"#]
    {
        broken(framed(body)).await;
    }
    broken([framed("x"), vec![0xff; 100]].concat()).await;
    broken(vec![0xff; 100]).await;
    // Frames that only the other side may send, or that come at the wrong time.
    broken(framed(r#"{"type":"rpc_result","id":1,"ok":true,"value":1}"#)).await;
    broken(framed(r#"{"type":"ready","version":1,"layers":[]}"#)).await;
    broken(framed(r#"{"type":"unavailable","message":"x"}"#)).await;
}

#[tokio::test]
async fn an_incomplete_frame_counts_as_closed() {
    for bytes in [vec![], vec![1, 0], call(1)[..20].to_vec()] {
        let seen = against(bytes, true).await;
        assert!(matches!(seen.ending, Ending::Closed), "{:?}", seen.ending);
        assert_eq!(seen.started, 0);
    }
}

#[tokio::test]
async fn call_ids_must_increase_by_one() {
    for ids in [&[0][..], &[2], &[1, 1], &[1, 3], &[2, 1], &[u64::MAX]] {
        let seen = broken(ids.iter().flat_map(|id| call(*id)).collect()).await;
        assert!(seen.started <= 1, "{ids:?}");
    }
}

#[tokio::test]
async fn exceeding_the_limit_of_calls_stops_the_run() {
    let seen = against((1..=4).flat_map(call).collect(), false).await;
    assert!(
        matches!(seen.ending, Ending::Stopped(ref failure) if failure.kind == FailureKind::TooManyCalls)
    );
    assert!(seen.started <= 3);
}

#[tokio::test]
async fn every_field_of_a_call_is_checked() {
    let long = "n".repeat(MAX_NAME + 1);
    let large = "x".repeat(1000);
    for body in [
        r#"{"type":"rpc_call","id":1,"namespace":"","action":"b","args":{}}"#.to_owned(),
        format!(r#"{{"type":"rpc_call","id":1,"namespace":"{long}","action":"b","args":{{}}}}"#),
        r#"{"type":"rpc_call","id":1,"namespace":"a","action":"b","args":[]}"#.to_owned(),
        r#"{"type":"rpc_call","id":1,"namespace":"a","action":"b","args":"{"}"#.to_owned(),
        format!(
            r#"{{"type":"rpc_call","id":1,"namespace":"a","action":"b","args":{{"x":"{large}"}}}}"#
        ),
        // A lone surrogate, which no Rust string can hold.
        r#"{"type":"rpc_call","id":1,"namespace":"a","action":"b","args":{"x":"\ud800"}}"#
            .to_owned(),
        // A field that no call has.
        r#"{"type":"rpc_call","id":1,"namespace":"a","action":"b","args":{},"approved":true}"#
            .to_owned(),
        // Deeper than the host's parser permits.
        format!(
            r#"{{"type":"rpc_call","id":1,"namespace":"a","action":"b","args":{{"x":{}{}}}}}"#,
            "[".repeat(300),
            "]".repeat(300)
        ),
    ] {
        let seen = broken(framed(&body)).await;
        assert_eq!(seen.started, 0, "{body}");
    }
}

#[tokio::test]
async fn results_and_failures_are_checked() {
    let long = "m".repeat(MAX_ERROR_TEXT + 100);
    for body in [
        format!(r#"{{"type":"execution_complete","ok":true,"value":"{}"}}"#, "x".repeat(1000)),
        format!(r#"{{"type":"execution_complete","ok":true,"value":{}{}}}"#, "[".repeat(300), "]".repeat(300)),
        r#"{"type":"execution_complete","ok":false,"error":{"kind":"exception","name":"a","message":"b","line":-1}}"#.to_owned(),
        format!(r#"{{"type":"execution_complete","ok":false,"error":{{"kind":"exception","name":"a","message":"{long}"}}}}"#),
    ] {
        broken(framed(&body)).await;
    }
    // Kinds that only the host determines, and one that does not exist.
    for kind in [
        "wall_time",
        "too_many_calls",
        "tool_result_too_large",
        "cancelled",
        "crashed",
        "unavailable",
        "other",
    ] {
        let error = format!(r#"{{"kind":"{kind}","name":"a","message":"b"}}"#);
        let body = format!(r#"{{"type":"execution_complete","ok":false,"error":{error}}}"#);
        broken(framed(&body)).await;
    }
    let failed = r#"{"type":"execution_complete","ok":false,"error":{"kind":"exception","name":"E","message":"m","code":"TOOL_RESULT_TOO_LARGE"}}"#;
    let seen = against(framed(failed), false).await;
    // No result was refused, so the code is only the program's own.
    assert!(
        matches!(seen.ending, Ending::Complete(Err(ref failure)) if failure.kind == FailureKind::Exception)
    );
}

#[tokio::test]
async fn console_lines_after_the_limit_break_the_protocol() {
    let line =
        |text: &str| framed(&format!(r#"{{"type":"console","level":"log","text":"{text}"}}"#));
    let seen = broken([line("12345"), line("6789"), line("xyz"), line("more")].concat()).await;
    assert!(seen.truncated);
    let kept: usize = seen.console.iter().map(|line| line.text.len()).sum();
    assert!(kept <= 10, "{kept}");
    broken(line("").repeat(100)).await;
    broken(framed(r#"{"type":"console","level":"fatal","text":""}"#)).await;
}

#[tokio::test]
async fn console_text_that_looks_like_a_frame_is_text() {
    let forged = r#"{\"type\":\"rpc_call\",\"id\":1}"#;
    let line = framed(&format!(r#"{{"type":"console","level":"log","text":"{forged}"}}"#));
    let done = framed(r#"{"type":"execution_complete","ok":true,"value":null}"#);
    let seen = against([line, done].concat(), false).await;
    assert!(matches!(seen.ending, Ending::Complete(Ok(Value::Null))));
    assert_eq!((seen.calls, seen.console.len()), (0, 1));
}

#[tokio::test]
async fn bytes_after_the_result_are_ignored() {
    let done = framed(r#"{"type":"execution_complete","ok":true,"value":1}"#);
    let seen = against([done.clone(), done, call(1), vec![0xff; 50]].concat(), false).await;
    assert!(matches!(seen.ending, Ending::Complete(Ok(ref value)) if *value == json!(1)));
    assert_eq!(seen.started, 0);
}

#[tokio::test]
async fn answers_to_a_child_that_never_reads_are_bounded() {
    // Calls of a run whose peer reads nothing: the answers stay bounded and the wall time ends it.
    let (ours, mut theirs) = pair();
    let limits = Limits {
        wall: Duration::from_millis(300),
        tool_result_bytes: 8 * MIB,
        calls: 1000,
        ..limits()
    };
    let calls: Vec<u8> = (1..=200).flat_map(call).collect();
    theirs.write_all(&calls).await.expect("the socket takes it");
    struct Huge;
    impl ToolCaller for Huge {
        fn call(
            &self,
            _: ToolCall,
            _: CancellationToken,
        ) -> BoxFuture<'static, Result<Value, CallError>> {
            Box::pin(async { Ok(json!("x".repeat(4 * MIB))) })
        }
    }
    let cancel = CancellationToken::new();
    let mut inbox = Inbox::default();
    let mut run = Run::new(&ours, &limits, Arc::new(Huge), &cancel);
    let program = Program::default();
    let ending = run.drive(&program, &mut inbox, || Some(Duration::ZERO), || (), &cancel).await;
    assert!(
        matches!(ending, Ending::Stopped(ref failure) if failure.kind == FailureKind::WallTime)
    );
    // The limit stops further answers, so the last one may exceed it.
    assert!(run.out.len() <= MAX_UNSENT + 5 * MIB, "{}", run.out.len());
}
