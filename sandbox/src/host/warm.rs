//! Children kept ready, so that no caller waits for a process to start.

use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Semaphore;

use crate::host::spawner::{self, Child, Kind};

/// A stock of children of one kind.
#[derive(Debug)]
pub(crate) struct Warm {
    kind: Kind,
    /// The number of children to keep ready.
    target: usize,
    /// Children that will be returned count towards `target` while they are on loan.
    reused: bool,
    stock: Mutex<Stock>,
    /// One permit for each entry of `Stock::idle`.
    available: Semaphore,
}

#[derive(Debug, Default)]
struct Stock {
    idle: VecDeque<io::Result<Child>>,
    starting: usize,
    waiting: usize,
    out: usize,
}

impl Warm {
    /// Returns a stock that starts to fill at once.
    pub(crate) fn new(kind: Kind, target: usize, reused: bool) -> Arc<Warm> {
        let warm = Arc::new(Warm {
            kind,
            target,
            reused,
            stock: Mutex::default(),
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
                    let _waiting = Waiting::begin(self);
                    self.refill();
                    self.available.acquire().await.expect("the semaphore is never closed")
                }
            };
            permit.forget();
            let entry = {
                let mut stock = self.lock();
                // The newest has most of itself in the caches still. While others start it may be at its
                // rehearsal, and the oldest has that behind it.
                let rested = stock.starting == 0;
                let entry = if rested { stock.idle.pop_back() } else { stock.idle.pop_front() };
                let entry = entry.expect("there is one entry for each permit");
                stock.out += usize::from(entry.is_ok());
                entry
            };
            let lent = entry.map(|child| Lent { child: Some(child), home: Arc::clone(self) });
            if self.is_low() {
                self.refill();
            }
            match lent {
                // One that died while it waited never saw a program; take the next.
                Ok(lent) if !lent.child().is_alive() => {}
                other => return other,
            }
        }
    }

    /// Returns whether the stock must be refilled now. Otherwise that waits until the run is over, as a child
    /// that starts takes the processor from the run.
    fn is_low(&self) -> bool {
        let stock = self.lock();
        2 * (stock.idle.len() + stock.starting) <= self.target
    }

    fn refill(self: &Arc<Self>) {
        let missing = {
            let mut stock = self.lock();
            let out = if self.reused { stock.out } else { 0 };
            let wanted = (self.target + if self.reused { 0 } else { stock.waiting })
                .max(usize::from(stock.waiting > 0));
            let missing = wanted.saturating_sub(stock.idle.len() + stock.starting + out);
            stock.starting += missing;
            missing
        };
        for _ in 0..missing {
            let home = Arc::downgrade(self);
            spawner::spawn(
                self.kind.clone(),
                Box::new(move |started| {
                    // If the stock no longer exists, the child is dropped, which kills it.
                    if let Some(home) = home.upgrade() {
                        let mut stock = home.lock();
                        stock.starting -= 1;
                        stock.idle.push_back(started);
                        drop(stock);
                        home.available.add_permits(1);
                    }
                }),
            );
        }
    }

    fn lock(&self) -> MutexGuard<'_, Stock> {
        self.stock.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

struct Waiting<'a>(&'a Warm);

impl<'a> Waiting<'a> {
    fn begin(warm: &'a Warm) -> Waiting<'a> {
        warm.lock().waiting += 1;
        Waiting(warm)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.lock().waiting -= 1;
    }
}

/// A child on loan from its stock. Dropping it kills the child; `give_back` returns it.
#[derive(Debug)]
pub(crate) struct Lent {
    child: Option<Child>,
    home: Arc<Warm>,
}

impl Lent {
    pub(crate) fn child(&self) -> &Child {
        self.child.as_ref().expect("the child leaves only with the loan")
    }

    pub(crate) fn child_mut(&mut self) -> &mut Child {
        self.child.as_mut().expect("the child leaves only with the loan")
    }

    /// Puts the child back for the next one.
    pub(crate) fn give_back(mut self) {
        if let Some(child) = self.child.take() {
            let mut stock = self.home.lock();
            stock.out -= 1;
            stock.idle.push_back(Ok(child));
            drop(stock);
            self.home.available.add_permits(1);
        }
    }

    /// Removes the child from the stock permanently; another one is started instead.
    pub(crate) fn keep(mut self) -> Child {
        let child = self.child.take().expect("the child leaves only with the loan");
        self.leave();
        child
    }

    fn leave(&self) {
        self.home.lock().out -= 1;
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
