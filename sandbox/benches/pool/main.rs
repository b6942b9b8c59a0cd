//! How long a program in a sealed child takes, beside a Deno Worker, a bare process and a bare fork.

mod deno;
#[path = "../../../tests/benches/support/figures.rs"]
mod figures;
#[path = "../../../tests/benches/support/pins.rs"]
mod pins;
#[path = "../../../tests/benches/support/spent.rs"]
mod spent;

use std::error::Error;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use futures::future::BoxFuture;
use sandbox::{CallError, Limits, Pool, PoolConfig, Program, ToolCall, ToolCaller};
use serde_json::{Value, json};
use tokio::runtime::Runtime;
use tokio_util::sync::CancellationToken;

use deno::Deno;
use figures::{Rounds, median, time};

const TRIVIAL: &str = "return args.n + 1";
const IN_TURN: &str =
    "let sum = 0; for (let i = 0; i < 1000; i++) sum += (await mcp.demo.echo({ i })).i; return sum";
const TOGETHER: &str =
    "const all = await Promise.all(Array.from({ length: 1000 }, (_, i) => mcp.demo.echo({ i })));
    return all.reduce((sum, { i }) => sum + i, 0)";
/// What the two programs above return.
const SUM: u64 = 499_500;

const START_ROUNDS: usize = 200;
const CALL_ROUNDS: usize = 60;
const FLOOD_ROUNDS: usize = 3;
const FLOOD: Duration = Duration::from_secs(2);
const SIDE_BY_SIDE: usize = 8;

const WORKER: &str = "a Deno Worker without permissions";
const FORK: &str = "fork + exit + wait";
const PROCESS: &str = "`/bin/true`, start to end";
const POOLED: &str = "pooled sealed child: program in → result out";
const COLD: &str = "the same from an empty pool";
const TURN_OURS: &str = "1,000 calls in turn, sealed child, its start included";
const TURN_DENO: &str = "1,000 calls in turn, Deno Worker that has started";
const ALL_OURS: &str = "1,000 calls in `Promise.all`, sealed child, its start included";
const ALL_DENO: &str = "1,000 calls in `Promise.all`, Deno Worker that has started";

struct Echo;

impl ToolCaller for Echo {
    fn call(
        &self,
        call: ToolCall,
        _: CancellationToken,
    ) -> BoxFuture<'static, Result<Value, CallError>> {
        Box::pin(async move { Ok(call.args) })
    }
}

/// A pool and a runtime like the gateway's.
struct Ours {
    runtime: Runtime,
    pool: Arc<Pool>,
    empty: Arc<Pool>,
}

impl Ours {
    fn start() -> Result<Ours, Box<dyn Error>> {
        let runtime = Runtime::new()?;
        let inside = runtime.enter();
        let pool = Arc::new(Pool::new(PoolConfig::default())?);
        let empty = Arc::new(Pool::new(PoolConfig { warm: 0, ..PoolConfig::default() })?);
        drop(inside);
        Ok(Ours { runtime, pool, empty })
    }

    /// Runs a program on one of the runtime's own threads, as the gateway does.
    fn run(&self, pool: &Arc<Pool>, source: &str) -> Result<(Value, Duration), Box<dyn Error>> {
        let (pool, program) = (Arc::clone(pool), program(source));
        let task = self.runtime.spawn(async move {
            let started = Instant::now();
            let outcome = pool
                .run(program, &Limits::server(), Arc::new(Echo), CancellationToken::new())
                .await;
            (outcome.result, started.elapsed())
        });
        let (result, took) = self.runtime.block_on(task)?;
        Ok((result.map_err(|failure| failure.message)?, took))
    }

    /// Runs the trivial program over and over; returns how often.
    fn flood(&self, length: Duration) -> Result<u64, Box<dyn Error>> {
        let count = Arc::new(AtomicU64::new(0));
        let started = Instant::now();
        let lanes: Vec<_> = (0..SIDE_BY_SIDE)
            .map(|_| {
                let (pool, count) = (Arc::clone(&self.pool), Arc::clone(&count));
                self.runtime.spawn(async move {
                    let limits = Limits::server();
                    while started.elapsed() < length {
                        let cancel = CancellationToken::new();
                        let run = pool.run(program(TRIVIAL), &limits, Arc::new(Echo), cancel);
                        run.await.result.map_err(|failure| failure.message)?;
                        count.fetch_add(1, Ordering::Relaxed);
                    }
                    Ok::<(), String>(())
                })
            })
            .collect();
        for lane in lanes {
            self.runtime.block_on(lane)??;
        }
        Ok(count.load(Ordering::Relaxed))
    }
}

fn program(source: &str) -> Program {
    Program { source: source.to_owned(), args: json!({ "n": 41 }), ..Program::default() }
}

/// What was started before has a moment to end, so that nobody pays for another's leftovers.
fn settle() {
    std::thread::sleep(Duration::from_millis(20));
}

fn same(found: &Value, wanted: u64) -> Result<(), String> {
    // Deno's numbers come as they are printed, ours may be floating.
    if found.as_f64() == Some(wanted as f64) {
        return Ok(());
    }
    Err(format!("a program returned {found}, not {wanted}"))
}

fn bare_process() -> Result<Duration, Box<dyn Error>> {
    let started = Instant::now();
    let status = Command::new("/bin/true")
        .env_clear()
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()?;
    let took = started.elapsed();
    if status.success() { Ok(took) } else { Err("/bin/true failed".into()) }
}

fn bare_fork() -> Result<Duration, Box<dyn Error>> {
    let started = Instant::now();
    #[expect(unsafe_code, reason = "nothing safe forks")]
    // SAFETY: the child calls nothing but `_exit`, which may be called after a fork of many threads.
    let pid = unsafe {
        let pid = libc::fork();
        if pid == 0 {
            libc::_exit(0);
        }
        pid
    };
    let mut status = 0;
    #[expect(unsafe_code, reason = "waits for one pid, not for any child")]
    // SAFETY: `status` is a valid place for one number.
    let waited = unsafe { libc::waitpid(pid, &raw mut status, 0) };
    let took = started.elapsed();
    if pid > 0 && waited == pid { Ok(took) } else { Err("cannot fork".into()) }
}

fn starts(ours: &Ours, deno: &mut Deno) -> Result<Rounds, Box<dyn Error>> {
    let mut rounds = Rounds::default();
    let args = json!({ "n": 41 });
    for _ in 0..START_ROUNDS {
        let answer = deno.fresh(TRIVIAL, &args)?;
        same(&answer.value, 42)?;
        rounds.add(WORKER, answer.took);
        settle();
        rounds.add(PROCESS, bare_process()?);
        settle();
        rounds.add(FORK, bare_fork()?);
        settle();
        for (name, pool) in [(POOLED, &ours.pool), (COLD, &ours.empty)] {
            let (value, took) = ours.run(pool, TRIVIAL)?;
            same(&value, 42)?;
            rounds.add(name, took);
            settle();
        }
    }
    Ok(rounds)
}

fn calls(ours: &Ours, deno: &mut Deno) -> Result<Rounds, Box<dyn Error>> {
    let mut rounds = Rounds::default();
    for _ in 0..CALL_ROUNDS {
        for (source, theirs, own) in
            [(IN_TURN, TURN_DENO, TURN_OURS), (TOGETHER, ALL_DENO, ALL_OURS)]
        {
            let answer = deno.started(source, &json!({}))?;
            same(&answer.value, SUM)?;
            rounds.add(theirs, answer.took);
            settle();
            let (value, took) = ours.run(&ours.pool, source)?;
            same(&value, SUM)?;
            rounds.add(own, took);
            settle();
        }
    }
    Ok(rounds)
}

/// One who runs as many programs as it can for a while: programs a second, CPU seconds for each.
struct Flood {
    name: String,
    rate: Vec<f64>,
    cpu: Vec<f64>,
}

impl Flood {
    fn new(name: String) -> Flood {
        Flood { name, rate: Vec::new(), cpu: Vec::new() }
    }

    fn add(
        &mut self,
        pid: u32,
        mut run: impl FnMut() -> Result<u64, Box<dyn Error>>,
    ) -> Result<(), Box<dyn Error>> {
        let (before, started) = (spent::cpu_of_tree(pid), Instant::now());
        let count = run()? as f64;
        let took = started.elapsed();
        // The last ones are still being reaped and replaced; that is part of the price.
        std::thread::sleep(Duration::from_millis(300));
        let cpu = spent::cpu_of_tree(pid).saturating_sub(before);
        self.rate.push(count / took.as_secs_f64());
        self.cpu.push(cpu.as_secs_f64() / count);
        Ok(())
    }

    fn row(&self) -> String {
        let (rate, cpu) = (median(self.rate.iter().copied()), median(self.cpu.iter().copied()));
        format!("| {} | {rate:.0} /s | {} |", self.name, time(cpu))
    }
}

fn floods(ours: &Ours, deno: &mut Deno) -> Result<String, Box<dyn Error>> {
    let mut own = Flood::new(format!("sealed children, {SIDE_BY_SIDE} side by side"));
    let mut bare = Flood::new("`/bin/true`, 2 side by side".to_owned());
    let mut peer = Flood::new("Deno Workers, 2 side by side".to_owned());
    let own_pid = std::process::id();
    let pid = deno.pid();
    for _ in 0..FLOOD_ROUNDS {
        peer.add(pid, || {
            let answer = deno.flood(TRIVIAL, &json!({ "n": 41 }), FLOOD, 2)?;
            answer.value.as_u64().ok_or_else(|| "Deno counts nothing".into())
        })?;
        own.add(own_pid, || ours.flood(FLOOD))?;
        bare.add(own_pid, || {
            let started = Instant::now();
            let lane = || {
                let mut count = 0;
                while started.elapsed() < FLOOD {
                    bare_process().map_err(|e| e.to_string())?;
                    count += 1;
                }
                Ok::<u64, String>(count)
            };
            std::thread::scope(|scope| {
                let other = scope.spawn(lane);
                let count = lane()?;
                let other = other.join().map_err(|_| "the other lane panicked")??;
                Ok(count + other)
            })
        })?;
    }
    let head = "| who | programs | CPU each, whole tree |\n|---|---:|---:|";
    Ok([head, &own.row(), &bare.row(), &peer.row()].join("\n"))
}

#[expect(clippy::print_stdout, reason = "a bench reports to its terminal")]
fn main() -> Result<(), Box<dyn Error>> {
    sandbox::child_main_if_requested(&[]);
    let ours = Ours::start()?;
    let mut deno = Deno::start()?;
    // What happens once is not what is measured.
    for _ in 0..5 {
        deno.fresh(TRIVIAL, &json!({ "n": 1 }))?;
        ours.run(&ours.pool, TRIVIAL)?;
        settle();
    }
    println!("### Programs in the sandbox, beside {}\n", deno.version);
    let layers = ours.runtime.block_on(ours.pool.layers())?;
    let layers: Vec<String> =
        layers.iter().map(|layer| format!("{} {:?}", layer.name, layer.state)).collect();
    println!("Layers: {}.\n", layers.join(", "));
    let table = starts(&ours, &mut deno)?;
    println!("{}", table.table(&[(POOLED, &[WORKER, FORK, PROCESS]), (COLD, &[WORKER, PROCESS])]));
    let table = calls(&ours, &mut deno)?;
    println!("{}", table.table(&[(TURN_OURS, &[TURN_DENO]), (ALL_OURS, &[ALL_DENO])]));
    println!("{}\n", floods(&ours, &mut deno)?);
    Ok(())
}
