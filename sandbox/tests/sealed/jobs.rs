//! Sealed jobs.

use std::sync::LazyLock;
use std::time::Duration;

use sandbox::{Job, JobFailure, JobLimits, JobPool, SandboxError};

use crate::support::trials;

/// Every job that this binary offers to its children.
pub(crate) const JOBS: [Job; 2] =
    [Job { name: "work", run: work }, Job { name: "probe", run: probe }];

pub(crate) use crate::probe::probe;

trials![
    a_job_converts_its_input_to_its_output,
    a_worker_is_reused,
    a_worker_that_dies_is_replaced,
    jobs_run_concurrently,
    a_dropped_job_frees_its_worker,
    input_and_output_sizes_are_limited,
    an_unknown_job_is_unavailable,
    a_pool_without_workers_is_refused,
];

/// How long a job may take.
const WALL: Duration = Duration::from_secs(4);

static POOL: LazyLock<JobPool> = LazyLock::new(|| pool("work", 2).expect("a pool"));

fn pool(name: &'static str, workers: usize) -> Result<JobPool, SandboxError> {
    // A busy machine runs out of the first limit, too.
    limited(name, Duration::from_millis(300), WALL, workers)
}

fn limited(
    name: &'static str,
    cpu: Duration,
    wall: Duration,
    workers: usize,
) -> Result<JobPool, SandboxError> {
    let limits = JobLimits { cpu, wall, ..JobLimits::default() };
    JobPool::new(Job { name, run: work }, limits, workers)
}

fn recurse(depth: u64) -> u64 {
    let page = std::hint::black_box([depth; 512]);
    if depth == 0 { page[0] } else { recurse(depth - 1) + page[1] }
}

fn work(input: &[u8]) -> Vec<u8> {
    let text = String::from_utf8_lossy(input);
    match text.as_ref() {
        "pid" => std::process::id().to_string().into_bytes(),
        "loop" => loop {
            std::hint::black_box(());
        },
        "sleep" => loop {
            std::thread::park();
        },
        "memory" => {
            let mut all = Vec::new();
            loop {
                // Untouched pages use address space, which is limited, and take no time.
                all.push(std::hint::black_box(Vec::<u8>::with_capacity(8 << 20)));
            }
        }
        "stack" => recurse(1 << 20).to_string().into_bytes(),
        "deep" => recurse(5_000).to_string().into_bytes(),
        "panic" => panic!("requested"),
        "caught" => {
            let caught = std::panic::catch_unwind(|| -> Vec<u8> { panic!("requested") });
            caught.unwrap_or_else(|_| b"caught".to_vec())
        }
        "large" => vec![7; 17 << 20],
        "fits" => vec![7; 16 << 20],
        other => other.to_uppercase().into_bytes(),
    }
}

async fn run(input: &str) -> Result<String, JobFailure> {
    let output = POOL.run(input.as_bytes().to_vec()).await?;
    Ok(String::from_utf8(output).expect("text"))
}

async fn a_job_converts_its_input_to_its_output() {
    assert_eq!(run("hello").await.unwrap(), "HELLO");
    assert_eq!(run("").await.unwrap(), "");
    let large = "x".repeat(1 << 20);
    assert_eq!(run(&large).await.unwrap().len(), 1 << 20);
    assert_eq!(POOL.run(b"fits".to_vec()).await.unwrap().len(), 16 << 20);
    run("deep").await.unwrap();
    assert_eq!(run("caught").await.unwrap(), "caught");
}

async fn a_worker_is_reused() {
    let own = pool("work", 1).expect("a pool");
    let first = own.run(b"pid".to_vec()).await.unwrap();
    assert_eq!(own.run(b"pid".to_vec()).await.unwrap(), first);
    assert_ne!(first, std::process::id().to_string().into_bytes());
}

async fn a_worker_that_dies_is_replaced() {
    let hurried = pool("work", 1).expect("a pool");
    // Filling a stack takes a busy machine long.
    let minute = Duration::from_secs(60);
    let patient = limited("work", minute, 2 * minute, 1).expect("a pool");
    let ends = [
        (&hurried, "loop", JobFailure::TimedOut),
        (&hurried, "sleep", JobFailure::Starved { within: WALL }),
        (&patient, "memory", JobFailure::OutOfMemory),
        (&patient, "stack", JobFailure::Crashed { signal: Some(libc::SIGSEGV) }),
        (&patient, "panic", JobFailure::Crashed { signal: None }),
    ];
    for round in 0..2 {
        for (pool, input, end) in &ends {
            let ended = pool.run(input.as_bytes().to_vec()).await;
            assert_eq!(ended.as_ref(), Err(end), "{round}: {input}");
        }
        for pool in [&hurried, &patient] {
            assert_eq!(pool.run(b"still here".to_vec()).await.unwrap(), b"STILL HERE");
        }
    }
}

async fn jobs_run_concurrently() {
    let inputs: Vec<String> = (0..40).map(|n| format!("job {n}")).collect();
    let outputs = futures::future::join_all(inputs.iter().map(|input| run(input))).await;
    for (input, output) in inputs.iter().zip(outputs) {
        assert_eq!(output.unwrap(), input.to_uppercase());
    }
}

async fn a_dropped_job_frees_its_worker() {
    let own = pool("work", 1).expect("a pool");
    let first = own.run(b"pid".to_vec()).await.unwrap();
    let early = tokio::time::timeout(Duration::from_millis(50), own.run(b"sleep".to_vec())).await;
    assert!(early.is_err());
    assert_ne!(own.run(b"pid".to_vec()).await.unwrap(), first);
}

async fn input_and_output_sizes_are_limited() {
    let failure = POOL.run(vec![0; (1 << 20) + 1]).await.unwrap_err();
    assert_eq!(failure, JobFailure::InputTooLarge { bytes: (1 << 20) + 1, limit: 1 << 20 });
    let failure = POOL.run(b"large".to_vec()).await.unwrap_err();
    assert_eq!(failure, JobFailure::OutputTooLarge { limit: 16 << 20 });
    assert_eq!(run("after").await.unwrap(), "AFTER");
}

async fn an_unknown_job_is_unavailable() {
    let failure = pool("nobody", 1).expect("a pool").run(Vec::new()).await.unwrap_err();
    let JobFailure::Unavailable(message) = failure else { panic!("{failure:?}") };
    assert!(message.contains("`nobody`"), "{message}");
}

async fn a_pool_without_workers_is_refused() {
    assert!(matches!(pool("work", 0), Err(SandboxError::NoWorkers)));
}
