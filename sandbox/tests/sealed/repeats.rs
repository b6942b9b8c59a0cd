//! A run that is repeated with its seed, its start and its answers does the same in the same order.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::future::BoxFuture;
use sandbox::{
    AnswerOrder, CallError, FailureKind, Limits, ProgramClock, Repeatable, ToolCall, ToolCaller,
};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::support::{Tools, pool, program, run_with, trials};

trials![
    a_seed_and_a_start_determine_a_run,
    a_run_is_repeated_whatever_its_timing,
    a_run_goes_on_after_its_record,
    another_program_does_not_follow_the_record,
    a_loop_that_waits_for_a_time_ends,
    an_invalid_start_is_no_panic,
    timers_wait_for_calls_in_virtual_time,
];

type Answers = Arc<Mutex<Vec<(u64, u64, Result<Value, CallError>)>>>;

/// Notes the answers of tools with their order and times.
struct Recorder {
    tools: Tools,
    clock: ProgramClock,
    answers: Answers,
}

impl ToolCaller for Recorder {
    fn call(
        &self,
        call: ToolCall,
        cancel: CancellationToken,
    ) -> BoxFuture<'static, Result<Value, CallError>> {
        let (id, clock, answers) = (call.id, self.clock.clone(), Arc::clone(&self.answers));
        let answer = self.tools.call(call, cancel);
        Box::pin(async move {
            let answer = answer.await;
            answers.lock().unwrap().push((id, clock.now_ms(), answer.clone()));
            answer
        })
    }

    fn answered_at(&self, call: u64) -> Option<u64> {
        let answers = self.answers.lock().unwrap();
        answers.iter().find(|(id, ..)| *id == call).map(|(_, at, _)| *at)
    }
}

/// Gives recorded answers; other calls are made after the last of them.
struct Repeater {
    live: Arc<Recorder>,
    order: Arc<AnswerOrder>,
    recorded: HashMap<u64, (u64, Result<Value, CallError>)>,
    made: Arc<Mutex<Vec<u64>>>,
}

impl ToolCaller for Repeater {
    fn call(
        &self,
        call: ToolCall,
        cancel: CancellationToken,
    ) -> BoxFuture<'static, Result<Value, CallError>> {
        let (live, order) = (Arc::clone(&self.live), Arc::clone(&self.order));
        let (recorded, made) = (self.recorded.get(&call.id).cloned(), Arc::clone(&self.made));
        Box::pin(async move {
            let stalled = |error: sandbox::NotMade| CallError::new(error.to_string());
            if let Some((_, answer)) = recorded {
                order.turn_of(call.id).await.map_err(stalled)?;
                return answer;
            }
            order.end().await.map_err(stalled)?;
            made.lock().unwrap().push(call.id);
            live.call(call, cancel).await
        })
    }

    fn answered_at(&self, call: u64) -> Option<u64> {
        self.recorded.get(&call).map(|(at, _)| *at).or_else(|| self.live.answered_at(call))
    }
}

fn repeatable(epoch_ms: i64) -> Repeatable {
    Repeatable { clock: ProgramClock::start(epoch_ms), seed: [7; 32] }
}

fn now() -> i64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    i64::try_from(now.as_millis()).unwrap()
}

/// Runs a program live, and returns its result and its answers.
async fn record(source: &str, epoch_ms: i64) -> (Value, Vec<(u64, u64, Result<Value, CallError>)>) {
    let with = repeatable(epoch_ms);
    let answers = Answers::default();
    let clock = with.clock.clone();
    let tools = Recorder { tools: Tools::default(), clock, answers: Arc::clone(&answers) };
    let program = sandbox::Program { repeatable: Some(with), ..program(source) };
    let limits = Limits::server();
    let run = pool().run(program, &limits, Arc::new(tools), CancellationToken::new());
    let outcome = tokio::time::timeout(Duration::from_secs(60), run).await.expect("it ends");
    let answers = answers.lock().unwrap().clone();
    (outcome.result.unwrap_or_else(|failure| panic!("{source}\n{failure:#?}")), answers)
}

/// Runs a program with these answers; returns the result, and the calls that were made again.
async fn repeat(
    source: &str,
    epoch_ms: i64,
    answers: &[(u64, u64, Result<Value, CallError>)],
) -> (Result<Value, sandbox::Failure>, Vec<u64>) {
    let with = repeatable(epoch_ms);
    let clock = with.clock.clone();
    let order = answers.iter().map(|(id, at, _)| (*id, *at)).collect();
    let made = Arc::new(Mutex::default());
    let tools = Repeater {
        order: Arc::new(AnswerOrder::new(clock.clone(), order)),
        recorded: answers.iter().cloned().map(|(id, at, answer)| (id, (at, answer))).collect(),
        live: Arc::new(Recorder { tools: Tools::default(), clock, answers: Answers::default() }),
        made: Arc::clone(&made),
    };
    let program = sandbox::Program { repeatable: Some(with), ..program(source) };
    let limits = Limits::server();
    let run = pool().run(program, &limits, Arc::new(tools), CancellationToken::new());
    let outcome = tokio::time::timeout(Duration::from_secs(60), run).await.expect("it ends");
    let made = made.lock().unwrap().clone();
    (outcome.result, made)
}

async fn a_seed_and_a_start_determine_a_run() {
    let source = r#"
        const t0 = Date.now();
        await new Promise((done) => setTimeout(done, 7));
        const bytes = crypto.getRandomValues(new Uint8Array(8));
        return [t0, Date.now(), new Date().toISOString(), Math.random(), crypto.randomUUID(), [...bytes]];
    "#;
    let once = || async { record(source, 1_700_000_000_000).await.0 };
    let (first, second) = (once().await, once().await);
    assert_eq!(first, second);
    assert_eq!(first[0], json!(1_700_000_000_000u64));
    assert_eq!(first[1], json!(1_700_000_000_007u64));
    assert_eq!(first[2], json!("2023-11-14T22:13:20.007Z"));
    let free = "return [Math.random(), crypto.randomUUID(), Date.now() > 1.7e12]";
    let (one, other) = (crate::support::value(free).await, crate::support::value(free).await);
    assert_ne!(one[0], other[0]);
    assert_ne!(one[1], other[1]);
    assert_eq!(one[2], json!(true));
}

/// Calls that race with one another and with timers, retries, time-outs, polling and random numbers.
const RACES: &[&str] = &[
    r#"
    const steps = [];
    const call = async (name, ms) => { await mcp.test.wait({ ms }); steps.push(`${name} ${Date.now()}`); };
    const tick = setInterval(() => steps.push(`tick ${Date.now()}`), 3);
    await Promise.all(["a", "b", "c", "d"].map((name) => call(name, Math.floor(Math.random() * 20))));
    clearInterval(tick);
    return steps;
    "#,
    r#"
    const steps = [];
    const limit = (ms) => new Promise((_, fail) => setTimeout(() => fail(new Error(`after ${ms}`)), ms));
    for (let attempt = 0; attempt < 6; attempt++) {
        try {
            await Promise.race([mcp.test.wait({ ms: attempt % 2 ? 40 : 1 }), limit(10)]);
            steps.push(`answered ${Date.now()}`);
        } catch (error) { steps.push(`${error.message} ${Date.now()}`); }
    }
    return steps;
    "#,
    r#"
    let done = false, rounds = 0;
    mcp.test.wait({ ms: 25 }).then(() => { done = true; });
    while (!done) { rounds++; await new Promise((next) => setTimeout(next, 0)); }
    const first = await Promise.race([1, 2, 3].map(async (n) => { await mcp.test.wait({ ms: n }); return n; }));
    try { await mcp.test.fail({}); } catch (error) { return [rounds, first, error.code, error.message, Date.now(), crypto.randomUUID()]; }
    "#,
    r#"
    const began = Date.now(), steps = [];
    setTimeout(() => steps.push("late"), 15);
    for (let i = 0; i < 5; i++) {
        setTimeout(() => steps.push(i), 5 - i);
        await mcp.test.wait({ ms: 4 });
        while (Date.now() - began < i * 6) {}
        steps.push(Date.now() - began);
    }
    return steps;
    "#,
];

async fn a_run_is_repeated_whatever_its_timing() {
    for source in RACES {
        for _ in 0..3 {
            let epoch = now();
            let (result, answers) = record(source, epoch).await;
            assert!(!answers.is_empty());
            let (again, made) = repeat(source, epoch, &answers).await;
            assert_eq!(again, Ok(result), "{source}");
            // Calls that lost a race may have no answer.
            assert!(made.iter().all(|id| answers.iter().all(|(answered, ..)| answered != id)));
        }
    }
}

/// The record ends at any of the answers, as after a crash. The rest is made, and nothing of the record is.
async fn a_run_goes_on_after_its_record() {
    let source = r#"
        const seen = [], uuid = crypto.randomUUID();
        for (let i = 0; i < 3; i++) {
            seen.push(...await Promise.all([mcp.test.id({}), mcp.test.echo({ i, at: Date.now(), uuid }), mcp.test.id({})]));
            await new Promise((next) => setTimeout(next, 5));
        }
        return seen;
    "#;
    let epoch = now();
    let (result, answers) = record(source, epoch).await;
    assert_eq!(answers.len(), 9);
    for kept in 0..=answers.len() {
        let (again, mut made) = repeat(source, epoch, &answers[..kept]).await;
        let again = again.unwrap();
        for (one, other) in again.as_array().unwrap().iter().zip(result.as_array().unwrap()) {
            // What was not recorded happens later. All else is as before.
            let without_time = |value: &Value| match value {
                Value::Object(echo) => json!([echo["i"], echo["uuid"]]),
                value => value.clone(),
            };
            assert_eq!(without_time(one), without_time(other), "{kept}");
        }
        made.sort_unstable();
        let recorded: Vec<u64> = answers[..kept].iter().map(|(id, ..)| *id).collect();
        let expected: Vec<u64> = (1..=9).filter(|id| !recorded.contains(id)).collect();
        assert_eq!(made, expected, "{kept}");
    }
}

async fn another_program_does_not_follow_the_record() {
    let epoch = now();
    let (_, answers) =
        record("await mcp.test.id({}); await mcp.test.id({}); return 1", epoch).await;
    // It waits for a timer that is due after the answer to a call that it never makes.
    let other =
        "await mcp.test.id({}); await new Promise((next) => setTimeout(next, 90_000)); return 2";
    let (result, made) = repeat(other, epoch, &answers).await;
    assert_eq!(result.map_err(|failure| failure.kind), Err(FailureKind::Deadlock));
    assert_eq!(made, [0_u64; 0]);
}

async fn a_loop_that_waits_for_a_time_ends() {
    let source =
        "const began = Date.now(); while (Date.now() - began < 50) {} return Date.now() - began";
    assert_eq!(record(source, now()).await.0, json!(50));
}

async fn an_invalid_start_is_no_panic() {
    for epoch_ms in [i64::MIN, -1, 0, i64::MAX] {
        let with = Repeatable { clock: ProgramClock::start(epoch_ms), seed: [0; 32] };
        let timer =
            "await new Promise((next) => setTimeout(next, 1)); await mcp.test.id({}); return 1";
        let program = sandbox::Program { repeatable: Some(with), ..program(timer) };
        let outcome = run_with(program, &Limits::server(), Arc::default()).await;
        assert_eq!(outcome.result, Ok(json!(1)), "{epoch_ms}");
    }
}

/// Every call ends before the timers fire, however long it takes; timers themselves take no time.
async fn timers_wait_for_calls_in_virtual_time() {
    let source = r#"
        const order = [];
        const timer = new Promise((done) => setTimeout(() => { order.push("timer"); done(); }, 60_000));
        await Promise.all([timer, mcp.test.wait({ ms: 50 }).then(() => order.push("call"))]);
        return [order.join(" "), Date.now()];
    "#;
    let clock = ProgramClock::virtual_time(1_700_000_000_000);
    let with = Repeatable { clock, seed: [1; 32] };
    let program = sandbox::Program { repeatable: Some(with), ..program(source) };
    let outcome = run_with(program, &Limits::server(), Arc::default()).await;
    assert_eq!(outcome.result, Ok(json!(["call timer", 1_700_000_060_000_u64])));
    assert!(outcome.duration < Duration::from_secs(20), "{:?}", outcome.duration);
}
