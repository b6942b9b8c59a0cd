//! a gateway under a steady load, under three times what it can do, and for a long time.
//!
//! The figures are printed: `cargo test … -- --nocapture gateway::drives`. What is asserted tells a gateway that works
//! from one that does not, since other tests share the machine. With full counts and programs as they are released, the
//! targets are asserted as well: `make soak` does so at its end, when nothing else runs.

mod sender;

use std::fs;
use std::time::{Duration, Instant};

use self::sender::{Kind, Outcome, Pace, Sender, Taken};
use crate::support::processes::Pid;
use crate::support::server::{Installation, Server, Tenant};
use crate::support::{PATIENCE, has_full_counts, poll, scaled};

/// The requests of a drive, by kind.
struct Figures {
    taken: Vec<Taken>,
    elapsed: Duration,
}

impl Figures {
    fn sorted(&self, wanted: impl Fn(Kind, Outcome) -> bool) -> Vec<Duration> {
        let taken = self.taken.iter().filter(|it| wanted(it.kind, it.outcome));
        let mut sorted: Vec<Duration> = taken.map(|it| it.took).collect();
        sorted.sort();
        sorted
    }

    /// Returns the median and the 99th percentile of one outcome.
    fn latencies(&self, of: Kind, of_outcome: Outcome) -> (Duration, Duration) {
        let sorted = self.sorted(|kind, outcome| kind == of && outcome == of_outcome);
        let at = |part: usize| sorted.get(sorted.len().saturating_sub(1) * part / 100).copied();
        (at(50).unwrap_or_default(), at(99).unwrap_or_default())
    }

    /// Returns the number of requests that were done, per second.
    fn goodput(&self) -> f64 {
        let done = self.sorted(|_, outcome| outcome == Outcome::Done).len();
        done as f64 / self.elapsed.as_secs_f64()
    }
}

/// Sends requests at a fixed rate.
fn open_loop(
    tenant: &Tenant,
    kinds: &[Kind],
    rate: f64,
    length: Duration,
    connections: usize,
) -> Figures {
    let began = Instant::now();
    let taken = Sender::new(tenant, connections).run(kinds, Pace::PerSecond(rate), length);
    Figures { taken, elapsed: began.elapsed() }
}

/// Sends requests one after the other on some connections; returns what was done per second.
fn capacity(tenant: &Tenant, kind: Kind, length: Duration) -> f64 {
    let began = Instant::now();
    let taken = Sender::new(tenant, 16).run(&[kind], Pace::Answered, length);
    Figures { taken, elapsed: began.elapsed() }.goodput()
}

/// Returns whether the targets hold: they are about what is released, with the machine to itself.
fn has_targets() -> bool {
    has_full_counts() && std::env::var_os("PML_TEST_BIN_DIR").is_some()
}

/// Scales a time, in seconds.
fn length(full: usize) -> Duration {
    Duration::from_millis(scaled(full * 1_000) as u64)
}

fn start() -> (Server, Tenant) {
    // The limits are those of the machine, not those of a key.
    let all =
        [("PML_RATE_PER_KEY", "off"), ("PML_RATE_PER_ORG", "off"), ("PML_RATE_PER_ADDRESS", "off")];
    let server = Installation::new().start_with(&all);
    let tenant = server.tenant();
    let mut sender = Sender::new(&tenant, 1);
    for kind in Kind::ALL {
        sender.ask(kind);
    }
    (server, tenant)
}

/// a steady load of each kind is served without an error.
#[test]
fn a_steady_load_is_served() {
    let (_server, tenant) = start();
    for (kind, rate, target_ms) in [
        (Kind::Health, 500.0, 20),
        (Kind::List, 500.0, 20),
        (Kind::Plan, 200.0, 30),
        (Kind::Execute, 50.0, 150),
    ] {
        // Other tests share the machine, so less is asked of it then.
        let rate = if has_targets() { rate } else { rate / 10.0 };
        let figures = open_loop(&tenant, &[kind], rate, length(20), 32);
        let (median, last) = figures.latencies(kind, Outcome::Done);
        eprintln!("{kind:?}: {rate}/s, median {median:?}, p99 {last:?}");
        assert_eq!(figures.sorted(|_, outcome| outcome == Outcome::Busy).len(), 0, "{kind:?}");
        assert!(last < PATIENCE, "{kind:?}");
        if has_targets() {
            assert!(last <= Duration::from_millis(target_ms), "{kind:?}: p99 {last:?}");
        }
    }
}

/// with three times the load that it can serve, the gateway serves what it can, refuses the rest at once with a
/// code, and is as before when the load ends.
#[test]
fn an_overload_is_refused_and_leaves_nothing_behind() {
    let (server, tenant) = start();
    let peak = capacity(&tenant, Kind::Execute, length(10));
    let light = || {
        let figures = open_loop(&tenant, &[Kind::Execute], 0.2 * peak, length(5), 16);
        figures.latencies(Kind::Execute, Outcome::Done).1
    };
    let (before, p99) = (server.pid().memory(), light());
    // More connections than the tenant's programs that run or wait, so that some are refused.
    let figures = open_loop(&tenant, &[Kind::Execute], 3.0 * peak, length(120), 160);
    let ended = Instant::now();
    let refused = figures.sorted(|_, outcome| outcome == Outcome::Busy).len();
    let (median, last) = figures.latencies(Kind::Execute, Outcome::Busy);
    let after = server.pid().memory();
    eprintln!(
        "peak {peak:.0}/s, goodput {:.0}/s, {refused} refused in {median:?} (p99 {last:?}), memory from {before} to {after}",
        figures.goodput()
    );
    assert!(refused > 0, "the load was no overload");
    assert!(after < before + (64 << 20), "from {before} to {after} bytes");
    let (part, patience) =
        if has_targets() { (0.8, Duration::from_secs(10)) } else { (0.2, PATIENCE) };
    assert!(figures.goodput() >= part * peak, "{:.0} of {peak:.0}", figures.goodput());
    poll("programs to be as fast as before", patience, || {
        let again = light();
        eprintln!("p99 {p99:?} before, {again:?} within {:?}", ended.elapsed());
        (again <= (2 * p99).max(Duration::from_millis(50))).then_some(())
    });
}

/// What a gateway holds.
#[derive(Debug)]
struct Held {
    memory: u64,
    files: usize,
    threads: usize,
    processes: usize,
}

impl Held {
    fn by(pid: Pid) -> Self {
        let count = |folder: &str| {
            fs::read_dir(format!("/proc/{}/{folder}", pid.number)).map_or(0, Iterator::count)
        };
        Self {
            memory: pid.memory(),
            files: count("fd"),
            threads: count("task"),
            processes: pid.tree().len(),
        }
    }
}

/// a mixed load of a third of what the gateway can do leaves its memory, files, threads and children flat. With
/// full counts it lasts 20 minutes.
#[test]
fn a_long_load_leaves_what_the_gateway_holds_flat() {
    let (server, tenant) = start();
    let rate = 0.3 * capacity(&tenant, Kind::Execute, length(10));
    let kinds = [Kind::Execute, Kind::List, Kind::Plan, Kind::Entry, Kind::Execute, Kind::Health];
    let drive = |seconds| open_loop(&tenant, &kinds, rate, Duration::from_secs(seconds), 32);
    let [warm_up, short, long] = if has_full_counts() { [60, 120, 1_020] } else { [3, 5, 12] };
    // What grows at first, such as caches and the pool of connections, is there from here on.
    drive(warm_up);
    let pid = server.pid();
    let (before, first) = (Held::by(pid), drive(short));
    let last = drive(long);
    let after = Held::by(pid);
    let p99 = |figures: &Figures| figures.latencies(Kind::Execute, Outcome::Done).1;
    eprintln!("{rate:.0}/s: {before:?} to {after:?}, p99 {:?} to {:?}", p99(&first), p99(&last));
    for figures in [&first, &last] {
        assert_eq!(figures.sorted(|_, outcome| outcome == Outcome::Busy).len(), 0);
    }
    let growth = if has_targets() { 2 << 20 } else { 16 << 20 };
    assert!(after.memory < before.memory + growth, "from {before:?} to {after:?}");
    for (what, from, to) in [
        ("files", before.files, after.files),
        ("threads", before.threads, after.threads),
        ("processes", before.processes, after.processes),
    ] {
        assert!(to <= from + 16, "{what}: from {from} to {to}");
    }
    if has_targets() {
        assert!(p99(&last) < p99(&first).mul_f64(1.1).max(Duration::from_millis(20)));
    }
}
