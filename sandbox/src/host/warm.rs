//! A stock of ready children, so that no caller waits for a process to start.

use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Semaphore;

use crate::host::spawner::{self, ChildProcess, Kind};
use crate::stats::PoolStats;

/// A stock of children of one kind.
#[derive(Debug)]
pub(crate) struct WarmStock {
    kind: Kind,
    /// The number of children to keep ready.
    target: usize,
    /// Whether children are given back, so that those on loan count towards `target`.
    reused: bool,
    /// The number of processors.
    processors: usize,
    state: Mutex<State>,
    /// One permit for each entry of `State::idle`.
    available: Semaphore,
}

#[derive(Debug, Default)]
struct State {
    idle: VecDeque<io::Result<ChildProcess>>,
    /// Children that were requested and have not started yet.
    starting: usize,
    /// Callers that wait for a child.
    waiting: usize,
    /// Children on loan.
    lent: usize,
    /// Children that have started, and those that could not be started.
    started: u64,
    failed_starts: u64,
}

impl WarmStock {
    /// Returns a stock that starts to fill at once.
    pub(crate) fn new(kind: Kind, target: usize, reused: bool) -> Arc<WarmStock> {
        let warm = Arc::new(WarmStock {
            kind,
            target,
            reused,
            processors: std::thread::available_parallelism().map_or(1, usize::from),
            state: Mutex::default(),
            available: Semaphore::new(0),
        });
        warm.refill();
        warm
    }

    /// Takes a living child, or waits for the next to start.
    pub(crate) async fn take(self: &Arc<Self>) -> io::Result<Lent> {
        loop {
            let permit = match self.available.try_acquire() {
                Ok(permit) => permit,
                Err(_) => {
                    // A guard, because the caller may stop waiting at any time.
                    let _waiting = Waiting::begin(self);
                    self.refill();
                    self.available.acquire().await.expect("the semaphore is never closed")
                }
            };
            // The permit stands for the entry that is taken out, so it does not return.
            permit.forget();
            let entry = {
                let mut state = self.lock();
                // The newest child still has most of its memory in the processor's caches. But while others start, the
                // newest may not have finished its warm-up, and the oldest has.
                let all_started = state.starting == 0;
                let entry =
                    if all_started { state.idle.pop_back() } else { state.idle.pop_front() };
                let entry = entry.expect("there is one entry for each permit");
                state.lent += usize::from(entry.is_ok());
                entry
            };
            let lent = entry.map(|child| Lent { child: Some(child), home: Arc::clone(self) });
            if self.is_low() {
                self.refill();
            }
            match lent {
                // A child that died while it waited has seen no program, so the next one replaces it.
                Ok(lent) if !lent.child().is_alive() => {}
                other => return other,
            }
        }
    }

    /// Returns whether the stock must be refilled before a run. Otherwise it is refilled after the run, because a child
    /// that starts takes processor time from the run.
    fn is_low(&self) -> bool {
        let state = self.lock();
        2 * (state.idle.len() + state.starting) <= self.target
    }

    fn refill(self: &Arc<Self>) {
        let (missing, has_time) = {
            let mut state = self.lock();
            // Reused children come back, so those on loan count as present. Others do not, so one
            // more is wanted for each caller that waits.
            let lent = if self.reused { state.lent } else { 0 };
            let wanted = (self.target + if self.reused { 0 } else { state.waiting })
                .max(usize::from(state.waiting > 0));
            let missing = wanted.saturating_sub(state.idle.len() + state.starting + lent);
            // Counted under the lock, so that two refills do not start the same children.
            state.starting += missing;
            // A child warms up to save its program time. While all processors are busy, that takes the same time from
            // another program, and some in addition.
            (missing, state.lent < self.processors)
        };
        for _ in 0..missing {
            // Weak, so that a start in progress does not keep a dropped stock alive.
            let home = Arc::downgrade(self);
            spawner::spawn(
                self.kind.clone(),
                has_time,
                Box::new(move |started| {
                    // If the stock no longer exists, the child is dropped, which kills it.
                    if let Some(home) = home.upgrade() {
                        let mut state = home.lock();
                        state.starting -= 1;
                        match &started {
                            Ok(_) => state.started += 1,
                            Err(_) => state.failed_starts += 1,
                        }
                        state.idle.push_back(started);
                        drop(state);
                        home.available.add_permits(1);
                        home.trim();
                    }
                }),
            );
        }
    }

    /// Ends the oldest children that nobody needs: those that were started for callers that no longer wait.
    fn trim(&self) {
        while let Ok(permit) = self.available.try_acquire() {
            let mut state = self.lock();
            // Entries whose permit somebody else has are about to be taken out.
            let unclaimed = self.available.available_permits() + 1;
            if self.reused || unclaimed <= self.target + state.waiting {
                return;
            }
            permit.forget();
            let surplus = state.idle.pop_front();
            drop(state);
            // Killed without the lock.
            drop(surplus);
        }
    }

    /// Returns the figures of the children.
    pub(crate) fn stats(&self) -> PoolStats {
        let state = self.lock();
        PoolStats {
            started: state.started,
            failed_starts: state.failed_starts,
            warm: state.idle.len(),
            starting: state.starting,
            busy: state.lent,
            waiting: state.waiting,
            ..PoolStats::default()
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Counts a caller as waiting until it is dropped.
struct Waiting<'a>(&'a WarmStock);

impl<'a> Waiting<'a> {
    fn begin(warm: &'a WarmStock) -> Waiting<'a> {
        warm.lock().waiting += 1;
        Waiting(warm)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.lock().waiting -= 1;
        self.0.trim();
    }
}

/// A child on loan from its stock. Dropping it kills the child; `give_back` returns it.
#[derive(Debug)]
pub(crate) struct Lent {
    child: Option<ChildProcess>,
    home: Arc<WarmStock>,
}

impl Lent {
    pub(crate) fn child(&self) -> &ChildProcess {
        self.child.as_ref().expect("the child leaves only with the loan")
    }

    pub(crate) fn child_mut(&mut self) -> &mut ChildProcess {
        self.child.as_mut().expect("the child leaves only with the loan")
    }

    /// Returns the child to the stock.
    pub(crate) fn give_back(mut self) {
        if let Some(child) = self.child.take() {
            let mut state = self.home.lock();
            state.lent -= 1;
            state.idle.push_back(Ok(child));
            drop(state);
            self.home.available.add_permits(1);
        }
    }

    /// Removes the child from the stock permanently; another one is started instead.
    pub(crate) fn remove(mut self) -> ChildProcess {
        let child = self.child.take().expect("the child leaves only with the loan");
        self.leave();
        child
    }

    fn leave(&self) {
        self.home.lock().lent -= 1;
        self.home.refill();
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        if self.child.take().is_some() {
            self.leave();
        }
    }
}
