//! Writes of concurrent callers that are made together: while one is on its way, further ones gather, and are the next.
//!
//! A write costs the database a commit and a round trip, however much it writes. Alone, a caller waits for nobody; when
//! many come, the next write rests for a moment, so that more of them share it.

use std::collections::{HashMap, HashSet};
use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use protocol::Scope;
use tokio::sync::oneshot;
use uuid::Uuid;

use crate::RegistryError;

/// The most items of one write.
const BATCH: usize = 128;

/// What is written for one caller.
pub(crate) trait Item: Clone + Send + 'static {
    /// Returns its id. Two items of the same id are never in one write, so that each gets its own answer.
    fn id(&self) -> Uuid;
}

/// The results of a write, one for each item, or why nothing was written.
pub(crate) type Written = Result<Vec<Result<(), RegistryError>>, RegistryError>;

/// When the next write waits for more to gather: for as long as the last one took, within these bounds.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Rest {
    /// How many must have gathered already, which tells that many come.
    pub(crate) from: usize,
    pub(crate) least: Duration,
    pub(crate) most: Duration,
}

/// The items that wait for the write that is on its way, by their tenant: no write has items of two.
pub(crate) struct Together<T> {
    rest: Rest,
    open: Mutex<HashMap<Scope, Vec<Waiting<T>>>>,
}

struct Waiting<T> {
    /// Without one, the caller only waits for what came before.
    item: Option<T>,
    done: oneshot::Sender<Result<(), RegistryError>>,
}

impl<T: Item> Together<T> {
    pub(crate) fn new(rest: Rest) -> Arc<Self> {
        Arc::new(Self { rest, open: Mutex::default() })
    }

    /// Hands over an item, to be written with those of other callers. It is written even if nobody waits for the
    /// returned future.
    ///
    /// # Errors
    /// The future returns the error of this item: if a write fails because of one, each is written alone.
    pub(crate) fn write<W, F>(
        self: &Arc<Self>,
        scope: &Scope,
        item: T,
        write: W,
    ) -> impl Future<Output = Result<(), RegistryError>> + Send + use<T, W, F>
    where
        W: Fn(Scope, Vec<T>) -> F + Send + Sync + 'static,
        F: Future<Output = Written> + Send + 'static,
    {
        let (done, answer) = oneshot::channel();
        let waiting = Waiting { item: Some(item), done };
        let is_first = {
            let mut open = self.lock();
            match open.get_mut(scope) {
                Some(gathered) => {
                    gathered.push(waiting);
                    false
                }
                None => {
                    open.insert(scope.clone(), vec![waiting]);
                    true
                }
            }
        };
        if is_first {
            let lead = Lead { of: Arc::clone(self), scope: scope.clone(), is_over: false };
            tokio::spawn(lead.write_all(write));
        }
        // Without an answer, the runtime is shutting down, or the write has panicked.
        async { answer.await.unwrap_or_else(|_| Err(unavailable())) }
    }

    /// Waits until what a tenant has handed over is written, or has failed.
    pub(crate) async fn catch_up(&self, scope: &Scope) {
        let (done, answer) = oneshot::channel();
        if let Some(gathered) = self.lock().get_mut(scope) {
            gathered.push(Waiting { item: None, done });
        } else {
            return;
        }
        let _ = answer.await;
    }

    /// Waits until what all tenants have handed over is written, or has failed.
    pub(crate) async fn catch_up_all(&self) {
        let scopes: Vec<Scope> = self.lock().keys().cloned().collect();
        for scope in scopes {
            self.catch_up(&scope).await;
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Scope, Vec<Waiting<T>>>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Writes what gathers for one tenant, until nothing does.
struct Lead<T: Item> {
    of: Arc<Together<T>>,
    scope: Scope,
    is_over: bool,
}

impl<T: Item> Lead<T> {
    async fn write_all<W, F>(mut self, write: W)
    where
        W: Fn(Scope, Vec<T>) -> F + Send + Sync + 'static,
        F: Future<Output = Written> + Send + 'static,
    {
        let mut rest = Duration::ZERO;
        loop {
            if !rest.is_zero() && self.have_many_gathered() {
                tokio::time::sleep(rest).await;
            }
            let Some(batch) = self.next() else { return };
            let began = Instant::now();
            self.write_one(batch, &write).await;
            rest = began.elapsed().clamp(self.of.rest.least, self.of.rest.most);
        }
    }

    async fn write_one<W, F>(&self, batch: Vec<Waiting<T>>, write: &W)
    where
        W: Fn(Scope, Vec<T>) -> F,
        F: Future<Output = Written>,
    {
        let items: Vec<T> = batch.iter().filter_map(|waiting| waiting.item.clone()).collect();
        let results = match items.is_empty() {
            true => Ok(Vec::new()),
            false => write(self.scope.clone(), items).await,
        };
        match results {
            Ok(results) => {
                let mut results = results.into_iter();
                for waiting in batch {
                    let result = waiting.item.as_ref().and_then(|_| results.next());
                    waiting.answer(result.unwrap_or(Ok(())));
                }
            }
            Err(RegistryError::Unavailable(_)) => {
                for waiting in batch {
                    waiting.answer(Err(unavailable()));
                }
            }
            // Nothing is written. Each is told what is wrong with its own item.
            Err(_) => {
                for mut waiting in batch {
                    let Some(item) = waiting.item.take() else {
                        waiting.answer(Ok(()));
                        continue;
                    };
                    let alone = write(self.scope.clone(), vec![item]).await;
                    waiting.answer(alone.and_then(|results| results.into_iter().collect()));
                }
            }
        }
    }

    /// Returns whether so many have gathered that the next write rests.
    fn have_many_gathered(&self) -> bool {
        let open = self.of.lock();
        open.get(&self.scope).is_some_and(|gathered| gathered.len() >= self.of.rest.from)
    }

    /// Takes what has gathered, but of two items with the same id only the first.
    fn next(&mut self) -> Option<Vec<Waiting<T>>> {
        let mut open = self.of.lock();
        let gathered = open.get_mut(&self.scope).map(std::mem::take).unwrap_or_default();
        if gathered.is_empty() {
            // Under the lock, so that whoever comes next finds no one to wait for.
            open.remove(&self.scope);
            self.is_over = true;
            return None;
        }
        let (mut taken, mut is_any_left) = (HashSet::new(), false);
        let (batch, later) = gathered.into_iter().partition(|waiting: &Waiting<T>| {
            let is_taken = match &waiting.item {
                Some(item) => taken.len() < BATCH && taken.insert(item.id()),
                None => !is_any_left,
            };
            is_any_left |= !is_taken;
            is_taken
        });
        open.insert(self.scope.clone(), later);
        Some(batch)
    }
}

impl<T: Item> Drop for Lead<T> {
    fn drop(&mut self) {
        // After a panic in a write: those who wait get an error, and whoever comes next begins anew.
        if !self.is_over {
            self.of.lock().remove(&self.scope);
        }
    }
}

impl<T> Waiting<T> {
    fn answer(self, result: Result<(), RegistryError>) {
        // The caller may have left.
        let _ = self.done.send(result);
    }
}

fn unavailable() -> RegistryError {
    RegistryError::Unavailable(sqlx::Error::WorkerCrashed)
}

#[cfg(test)]
mod tests {
    use tokio::sync::Semaphore;

    use super::*;

    const NO_REST: Rest = Rest { from: 1, least: Duration::ZERO, most: Duration::ZERO };

    #[derive(Clone, Copy)]
    struct Number(u128);

    impl Item for Number {
        fn id(&self) -> Uuid {
            Uuid::from_u128(self.0)
        }
    }

    /// A place to write to that waits for permits, and notes what was written together.
    #[derive(Clone)]
    struct Paper {
        permits: Arc<Semaphore>,
        written: Arc<Mutex<Vec<Vec<u128>>>>,
    }

    impl Paper {
        fn new(permits: usize) -> Self {
            Self { permits: Arc::new(Semaphore::new(permits)), written: Arc::default() }
        }

        /// Writes all numbers or none: one above 1,000 is invalid, and 999 is a bug.
        async fn write(self, numbers: Vec<Number>) -> Written {
            self.permits.acquire().await.unwrap().forget();
            let numbers: Vec<u128> = numbers.iter().map(|number| number.0).collect();
            assert!(!numbers.contains(&999), "a bug");
            if let Some(large) = numbers.iter().find(|number| **number > 1_000) {
                return Err(RegistryError::Invalid(large.to_string()));
            }
            let results = numbers.iter().map(|_| Ok(())).collect();
            self.written.lock().unwrap().push(numbers);
            Ok(results)
        }
    }

    async fn write(
        to: &Paper,
        together: &Arc<Together<Number>>,
        scope: &str,
        number: u128,
    ) -> Result<(), RegistryError> {
        let (to, scope) = (to.clone(), scope.parse().unwrap());
        together.write(&scope, Number(number), move |_, numbers| to.clone().write(numbers)).await
    }

    /// Starts writers, one after the other, that wait for permits.
    async fn start(
        to: &Paper,
        together: &Arc<Together<Number>>,
        numbers: &[(&'static str, u128)],
    ) -> Vec<tokio::task::JoinHandle<Result<(), RegistryError>>> {
        let mut writers = Vec::new();
        for &(scope, number) in numbers {
            let (to, together) = (to.clone(), Arc::clone(together));
            writers.push(tokio::spawn(async move { write(&to, &together, scope, number).await }));
            // The runtime of a test has one thread, so the writer has begun to wait when this returns.
            tokio::task::yield_now().await;
            tokio::task::yield_now().await;
        }
        writers
    }

    #[tokio::test]
    async fn what_gathers_during_a_write_is_the_next_write() {
        let (to, together) = (Paper::new(0), Together::new(NO_REST));
        let all = [("a.a", 1), ("a.a", 2), ("a.a", 3), ("b.b", 4), ("a.a", 2)];
        let writers = start(&to, &together, &all).await;
        to.permits.add_permits(10);
        for writer in writers {
            writer.await.unwrap().unwrap();
        }
        let mut written = to.written.lock().unwrap().clone();
        written.sort();
        // Another tenant's is written apart, and the same id again comes after the first.
        assert_eq!(written, [vec![1], vec![2], vec![2, 3], vec![4]]);
        assert!(together.lock().is_empty());
    }

    #[tokio::test]
    async fn while_many_come_the_next_write_rests() {
        // Long, so that a busy machine does not end it before the others have come.
        let rest = Rest { from: 2, least: Duration::from_secs(2), most: Duration::from_secs(2) };
        let (to, together) = (Paper::new(0), Together::new(rest));
        let mut writers = start(&to, &together, &[("a.a", 1), ("a.a", 2), ("a.a", 3)]).await;
        to.permits.add_permits(10);
        while to.written.lock().unwrap().is_empty() {
            tokio::task::yield_now().await;
        }
        assert_eq!(*to.written.lock().unwrap(), [[1]]);
        let caught_up = {
            let together = Arc::clone(&together);
            tokio::spawn(async move { together.catch_up(&"a.a".parse().unwrap()).await })
        };
        tokio::task::yield_now().await;
        writers.extend(start(&to, &together, &[("a.a", 4)]).await);
        caught_up.await.unwrap();
        assert_eq!(*to.written.lock().unwrap(), [vec![1], vec![2, 3, 4]]);
        for writer in writers {
            writer.await.unwrap().unwrap();
        }
        // There is nothing to catch up with.
        together.catch_up(&"a.a".parse().unwrap()).await;
    }

    #[tokio::test]
    async fn what_is_wrong_with_one_item_is_told_to_its_caller_only() {
        let (to, together) = (Paper::new(0), Together::new(NO_REST));
        let writers = start(&to, &together, &[("a.a", 1), ("a.a", 2), ("a.a", 2_000), ("a.a", 3)]);
        let writers = writers.await;
        to.permits.add_permits(10);
        let mut answers = Vec::new();
        for writer in writers {
            answers.push(writer.await.unwrap().map_err(|error| error.to_string()));
        }
        assert_eq!(answers, [Ok(()), Ok(()), Err("2000".to_owned()), Ok(())]);
        assert_eq!(*to.written.lock().unwrap(), [vec![1], vec![2], vec![3]]);
    }

    #[tokio::test]
    async fn a_caller_that_leaves_and_a_panic_stop_nobody_else() {
        let (to, together) = (Paper::new(0), Together::new(NO_REST));
        let writers = start(&to, &together, &[("a.a", 1), ("a.a", 2)]).await;
        for writer in writers {
            writer.abort();
        }
        to.permits.add_permits(2);
        let written = || to.written.lock().unwrap().len() == 2;
        tokio::time::timeout(Duration::from_secs(20), async {
            while !written() {
                tokio::task::yield_now().await;
            }
        })
        .await
        .unwrap();
        let writers = start(&to, &together, &[("a.a", 999), ("a.a", 5)]).await;
        to.permits.add_permits(10);
        for writer in writers {
            assert!(matches!(writer.await.unwrap(), Err(RegistryError::Unavailable(_))));
        }
        write(&to, &together, "a.a", 6).await.unwrap();
    }
}
