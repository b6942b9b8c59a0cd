//! Runs this binary as another host: as another user, under other restrictions, or to be killed.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use sandbox::{FailureKind, Job, JobFailure, JobLimits, JobPool, Limits, Pool, PoolConfig};
use tokio_util::sync::CancellationToken;

use crate::host_setup;
use crate::malicious_zygote::{WITH_MALICIOUS_ZYGOTE, run_with_malicious_zygote};
use crate::probe::probe;
use crate::seal::{assert_bare, assert_closed, filters};
use crate::support::{Tools, eventually, program, tree_of};

/// The number of processes of a zygote without its children: itself, and the init of its namespace.
pub(crate) const ZYGOTE_PROCESSES: usize = 2;

/// Runs this binary as another host and returns its first line.
pub(crate) fn other_host(role: &str) -> (std::process::Child, String) {
    let mut host = Command::new("/proc/self/exe")
        .args(["__host", role])
        .stdout(Stdio::piped())
        .spawn()
        .expect("another host");
    let mut line = String::new();
    let stdout = host.stdout.take().expect("a pipe");
    BufReader::new(stdout).read_line(&mut line).expect("a line");
    (host, line.trim().to_owned())
}

/// The number of programs that run one after the other at full scale, and the number that run concurrently.
const IN_SEQUENCE: usize = 10_000;
const IN_PARALLEL: usize = 500;

/// Scales a count by `PML_TEST_SCALE`; 1 is the full count.
pub(crate) fn scaled(count: usize) -> usize {
    let scale = std::env::var("PML_TEST_SCALE").ok().and_then(|text| text.parse().ok());
    ((count as f64 * scale.unwrap_or(0.1)) as usize).max(20)
}

pub(crate) fn open_descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").map(Iterator::count).expect("its own descriptors")
}

/// Returns the resident memory of this process, in KiB.
pub(crate) fn resident_kib() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").expect("its own status");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("a line");
    line.trim().trim_end_matches(" kB").parse().expect("a number")
}

fn is_zombie(pid: u32) -> bool {
    std::fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| stat.contains(") Z "))
}

/// Returns the number of processors on which a process may run.
fn processors(pid: u32) -> u32 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed:"));
    mask.unwrap_or_default()
        .chars()
        .filter_map(|digit| digit.to_digit(16))
        .map(u32::count_ones)
        .sum()
}

/// Returns whether a process yields to all others, and leaves its host one processor.
fn is_deprioritized(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let (_, fields) = stat.rsplit_once(')').unwrap_or_default();
    let policy = fields.split_whitespace().nth(38).and_then(|policy| policy.parse().ok());
    let left = (processors(std::process::id()) - 1).max(1);
    policy == Some(libc::SCHED_IDLE) && processors(pid) == left
}

/// The main function of this binary as another host.
pub(crate) fn run_as_other_host(role: &str) {
    // Before a second thread starts, because each of these must hold for the whole process.
    match role {
        "self-test as an ordinary user"
        | "an ordinary user who inspects children"
        | "crowded, as an ordinary user" => {
            host_setup::become_an_ordinary_user();
        }
        "self-test without namespaces" => host_setup::disable_user_namespaces(),
        "no landlock" => host_setup::deny_system_calls(&[(libc::SYS_landlock_restrict_self, None)]),
        "no seccomp" => host_setup::deny_system_calls(&[
            (libc::SYS_seccomp, None),
            (libc::SYS_prctl, Some(libc::PR_SET_SECCOMP as u64)),
        ]),
        _ => {}
    }
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    runtime.block_on(async {
        let own = || tree_of(std::process::id());
        match role {
            "self-test" | "self-test as an ordinary user" | "self-test without namespaces" => {
                let seen = sandbox::self_test().await.expect("a self-test");
                let report = serde_json::json!({
                    "holds": seen.holds(), "layers": seen.layers, "calls": seen.calls,
                });
                print_line(&report.to_string());
            }
            "no landlock" | "no seccomp" => {
                let pool = Pool::new(PoolConfig::default()).expect("a pool");
                let outcome = pool
                    .run(
                        program("await mcp.test.echo({}); return 1"),
                        &Limits::server(),
                        Arc::new(Tools::default()) as _,
                        CancellationToken::new(),
                    )
                    .await;
                let failure = outcome.result.expect_err("no program runs");
                assert_eq!((failure.kind, outcome.calls), (FailureKind::Unavailable, 0));
                assert!(sandbox::self_test().await.is_err());
                let job = Job { name: "probe", run: probe };
                let jobs = JobPool::new(job, JobLimits::default(), 1).expect("a pool");
                let answer = jobs.run(b"environment".to_vec()).await;
                assert!(matches!(answer, Err(JobFailure::Unavailable(_))), "{answer:?}");
                print_line(&format!("unavailable: {}", failure.message));
            }
            "with inspected children" | "an ordinary user who inspects children" => {
                let pool =
                    Pool::new(PoolConfig { warm: 2, max_running: 1, ..PoolConfig::default() })
                        .expect("a pool");
                // No program runs, so none of the children is about to exit.
                let with = |count| {
                    let pids = own().into_iter().filter(move |pid| filters(*pid) == count);
                    pids.collect::<Vec<u32>>()
                };
                eventually("a zygote is sealed, and its forks with a second filter", || {
                    own().len() == 2 + ZYGOTE_PROCESSES && with(1).len() == 1 && with(2).len() == 3
                })
                .await;
                if role == "with inspected children" {
                    with(2).into_iter().for_each(assert_bare);
                    print_line("bare");
                } else {
                    own().iter().for_each(|pid| assert_closed(*pid));
                    print_line("closed");
                }
                drop(pool);
            }
            "busy" => {
                let pool =
                    Pool::new(PoolConfig { warm: 2, max_running: 4, ..PoolConfig::default() })
                        .expect("a pool");
                let limits = Limits { cpu: Duration::from_secs(60), ..Limits::client() };
                let tools = Arc::new(Tools::default());
                let run = |source: &str| {
                    pool.run(
                        program(source),
                        &limits,
                        Arc::clone(&tools) as _,
                        CancellationToken::new(),
                    )
                };
                let busy = run("mcp.test.echo({}); for (;;) {}");
                let waiting = run("await mcp.test.never({})");
                let announce = async {
                    eventually("two children wait, and two programs run", || {
                        own().len() >= 4 + ZYGOTE_PROCESSES
                            && tools.most_running.load(std::sync::atomic::Ordering::SeqCst) >= 1
                    })
                    .await;
                    let list: Vec<String> = own().iter().map(u32::to_string).collect();
                    print_line(&list.join(" "));
                    std::future::pending::<()>().await;
                };
                tokio::join!(busy, waiting, announce);
            }
            WITH_MALICIOUS_ZYGOTE => {
                run_with_malicious_zygote().await;
                print_line("clean");
            }
            "crowded" | "crowded, as an ordinary user" => {
                let config = PoolConfig { warm: 0, max_running: 200, ..PoolConfig::default() };
                let pool = Pool::new(config).expect("a pool");
                let limits = Limits::server();
                let run = async || {
                    let tools = Arc::new(Tools::default()) as _;
                    let source = "await new Promise((done) => setTimeout(done, 20)); return 1";
                    pool.run(program(source), &limits, tools, CancellationToken::new()).await.result
                };
                for _ in 0..5 {
                    let ended = futures::future::join_all((0..150).map(|_| run())).await;
                    for result in ended {
                        assert_eq!(result, Ok(serde_json::json!(1)));
                    }
                }
                print_line("all of them");
            }
            "long" => {
                let pool =
                    Pool::new(PoolConfig { make_way: true, warm: 1, ..PoolConfig::default() })
                        .expect("a pool");
                let limits = Limits { cpu: Duration::from_secs(60), ..Limits::client() };
                let run = |source: &str| {
                    let tools = Arc::new(Tools::default()) as _;
                    pool.run(program(source), &limits, tools, CancellationToken::new())
                };
                let long = run("for (;;) {}");
                let short = run("await mcp.test.never({})");
                let announce = async {
                    eventually("one of the two is deprioritized", || {
                        let last = own().into_iter().filter(|pid| is_deprioritized(*pid));
                        own().len() >= 2 + ZYGOTE_PROCESSES && last.count() == 1
                    })
                    .await;
                    print_line("deprioritized");
                };
                tokio::select! {
                    _ = long => panic!("it has no end"),
                    _ = short => panic!("it has no answer"),
                    () = announce => {}
                }
            }
            "drop" => {
                let pool =
                    Pool::new(PoolConfig { warm: 3, max_running: 1, ..PoolConfig::default() })
                        .expect("a pool");
                eventually("three children live", || own().len() == 3 + ZYGOTE_PROCESSES).await;
                drop(pool);
                eventually("no child lives", || own().is_empty()).await;
                print_line("gone");
            }
            "many" => {
                let pool =
                    Pool::new(PoolConfig { warm: 2, max_running: 8, ..PoolConfig::default() })
                        .expect("a pool");
                let limits = Limits::server();
                let run = |source: &str| {
                    pool.run(
                        program(source),
                        &limits,
                        Arc::new(Tools::default()) as _,
                        CancellationToken::new(),
                    )
                };
                let one = async |number: usize| {
                    let outcome = run("return (await mcp.test.echo({ a: 1 })).a").await;
                    assert_eq!(outcome.result, Ok(serde_json::json!(1)), "{number}");
                };
                // The first runs cause all one-time allocations.
                let in_sequence = scaled(IN_SEQUENCE);
                for number in 0..in_sequence / 10 {
                    one(number).await;
                }
                let (memory, descriptors) = (resident_kib(), open_descriptors());
                for number in 0..in_sequence {
                    one(number).await;
                }
                futures::future::join_all((0..IN_PARALLEL).map(&one)).await;
                // A zygote, perhaps its successor, and the two waiting children of each; no zombie.
                eventually("the children of the runs are gone", || {
                    own().len() <= 2 + 2 * ZYGOTE_PROCESSES
                        && !own().iter().any(|pid| is_zombie(*pid))
                })
                .await;
                eventually("no descriptor of a run is left", || {
                    open_descriptors() <= descriptors + 8
                })
                .await;
                let grown = resident_kib().saturating_sub(memory);
                assert!(grown < 16 * 1024, "{in_sequence} runs took {grown} KiB for good");
                print_line("clean");
            }
            other => panic!("no role {other}"),
        }
    });
}

#[expect(clippy::print_stdout, reason = "the other host's only answer")]
fn print_line(text: &str) {
    println!("{text}");
}
