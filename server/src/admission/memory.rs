//! The memory limits of tenants' messages and of the answers to them.
//!
//! A parsed message is many times as large as its bytes, by a factor that depends on its shape. So its cost is
//! estimated before it is parsed, and it waits until there is memory: for its tenant, and in total. Small messages
//! have a budget of their own, so that they do not wait for large ones.

mod threads;

use std::collections::HashMap;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use axum::http::{HeaderValue, StatusCode, header};
use execution::Budget;
use protocol::{ErrorCode, Scope};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use self::threads::Threads;
use crate::error::ApiError;

const KIB: usize = 1024;
const MIB: usize = 1024 * KIB;

/// The cost of a byte of a message: it is held as received, copied for the parser, and contained in the parsed
/// strings.
const BYTE: usize = 3;
/// The maximum number of values and names in an MCP message.
const TOKENS: usize = 200_000;
/// The largest cost of a small message.
const SMALL: usize = 512 * KIB;
/// How long a message waits for memory.
const PATIENCE: Duration = Duration::from_secs(10);

/// How long after a large message its remains are freed: its bytes, its answer, the buffers of its connection.
const TRIM_DELAY: Duration = Duration::from_secs(1);

/// Whether that is already scheduled.
static TRIM_IS_DUE: AtomicBool = AtomicBool::new(false);

/// The result of parsing a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Parsed {
    /// The types of rmcp, which reads it into trees twice.
    Message,
    /// One tree, or a type of ours.
    Tree,
    /// Nothing but the names of its members.
    Names,
}

impl Parsed {
    /// Returns what a value or a name costs, in bytes, measured with the worst shapes.
    const fn token(self) -> usize {
        match self {
            Self::Message => 600,
            Self::Tree => 250,
            Self::Names => 64,
        }
    }
}

/// Room for messages, in KiB.
#[derive(Debug)]
struct Room {
    arriving: Lane,
    small: Lane,
    large: Lane,
}

#[derive(Debug)]
struct Lane {
    size: u32,
    free: Arc<Semaphore>,
}

impl Lane {
    fn new(bytes: usize) -> Self {
        let size = u32::try_from(bytes / KIB).unwrap_or(u32::MAX);
        Self { size, free: Arc::new(Semaphore::new(bytes / KIB)) }
    }

    /// Waits for room. What is larger than the lane takes all of it.
    async fn take(&self, bytes: usize) -> OwnedSemaphorePermit {
        let wanted = u32::try_from(bytes.div_ceil(KIB)).unwrap_or(u32::MAX).min(self.size);
        let free = Arc::clone(&self.free);
        free.acquire_many_owned(wanted).await.expect("the semaphore is never closed")
    }
}

impl Room {
    fn new(arriving: usize, small: usize, large: usize) -> Self {
        Self { arriving: Lane::new(arriving), small: Lane::new(small), large: Lane::new(large) }
    }

    fn of_tenant() -> Self {
        Self::new(48 * MIB, 32 * MIB, 128 * MIB)
    }
}

/// The room of all tenants.
#[derive(Debug, Clone)]
pub(crate) struct Memory(Arc<Rooms>);

#[derive(Debug)]
struct Rooms {
    total: Room,
    tenants: Mutex<HashMap<Scope, Weak<Room>>>,
    patience: Duration,
    threads: Threads,
}

/// The budget of one tenant, and the shared ones.
#[derive(Debug, Clone)]
pub(crate) struct TenantMemory {
    all: Memory,
    scope: Scope,
}

/// Room that is taken until this is dropped.
#[derive(Debug)]
pub(crate) struct Held {
    /// They go with the memory.
    permits: Option<[OwnedSemaphorePermit; 2]>,
    tenant: Arc<Room>,
    is_large: bool,
}

impl Memory {
    /// Starts with all room free.
    ///
    /// # Errors
    /// Returns an error when the threads for large messages do not start.
    pub(crate) fn start() -> io::Result<Self> {
        Self::with_patience(PATIENCE)
    }

    fn with_patience(patience: Duration) -> io::Result<Self> {
        let total = Room::new(256 * MIB, 256 * MIB, 256 * MIB);
        let threads = Threads::start()?;
        Ok(Self(Arc::new(Rooms { total, tenants: Mutex::default(), patience, threads })))
    }

    /// Works on a message that has its room: on a large one where nobody else has to wait for it.
    pub(crate) async fn work<F>(&self, room: &Held, work: F) -> F::Output
    where
        F: Future<Output: Send> + Send + 'static,
    {
        if room.is_large { self.0.threads.run(work).await } else { work.await }
    }

    /// Returns the room of a tenant.
    pub(crate) fn of(&self, scope: &Scope) -> TenantMemory {
        TenantMemory { all: self.clone(), scope: scope.clone() }
    }

    /// Takes room for what a message is parsed to.
    ///
    /// # Errors
    /// Returns `BUSY` if no memory becomes free in time, and refuses an MCP message with too many values.
    pub(crate) async fn parsed(
        &self,
        scope: &Scope,
        message: &[u8],
        parsed: Parsed,
    ) -> Result<Held, ApiError> {
        let tokens = protocol::json::values(message);
        if tokens > TOKENS && parsed == Parsed::Message {
            let what = format!("a message has at most {TOKENS} values and names");
            return Err(ApiError::new(ErrorCode::InvalidRequest, what)
                .with_status(StatusCode::PAYLOAD_TOO_LARGE));
        }
        let cost = message.len() * BYTE + tokens * parsed.token();
        if cost <= SMALL {
            return self.take(scope, cost, |room| &room.small).await;
        }
        let mut held = self.take(scope, cost, |room| &room.large).await?;
        held.is_large = true;
        Ok(held)
    }

    async fn take(
        &self,
        scope: &Scope,
        bytes: usize,
        lane: impl Fn(&Room) -> &Lane,
    ) -> Result<Held, ApiError> {
        let tenant = self.tenant(scope);
        // First the tenant's own budget, so that a tenant that waits for itself does not block others.
        let both = async {
            let own = lane(&tenant).take(bytes).await;
            [own, lane(&self.0.total).take(bytes).await]
        };
        match tokio::time::timeout(self.0.patience, both).await {
            Ok(permits) => Ok(Held { permits: Some(permits), tenant, is_large: false }),
            Err(_) => {
                let what = "too many large messages at once; retry";
                let retry = HeaderValue::from_static("1");
                Err(ApiError::new(ErrorCode::Busy, what).with_header(header::RETRY_AFTER, retry))
            }
        }
    }

    fn tenant(&self, scope: &Scope) -> Arc<Room> {
        let mut tenants = self.0.tenants.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = tenants.get(scope).and_then(Weak::upgrade) {
            return known;
        }
        // Tenants without messages are removed here, so that the map stays small.
        tenants.retain(|_, tenant| tenant.strong_count() > 0);
        let tenant = Arc::new(Room::of_tenant());
        tenants.insert(scope.clone(), Arc::downgrade(&tenant));
        tenant
    }
}

impl Budget for TenantMemory {
    type Held = Held;
    type Error = ApiError;

    async fn arriving(&self, bytes: usize) -> Result<Held, ApiError> {
        let mut held = self.all.take(&self.scope, bytes, |room| &room.arriving).await?;
        held.is_large = bytes > SMALL;
        Ok(held)
    }

    async fn parsed(&self, message: &[u8]) -> Result<Held, ApiError> {
        self.all.parsed(&self.scope, message, Parsed::Message).await
    }

    fn shrink(held: &mut Held, bytes: usize) {
        let needed = bytes.div_ceil(KIB);
        for permit in held.permits.iter_mut().flatten() {
            let spare = permit.num_permits().saturating_sub(needed);
            drop(permit.split(spare));
        }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let (true, Ok(runtime)) = (self.is_large, tokio::runtime::Handle::try_current()) else {
            return;
        };
        let held = (self.permits.take(), Arc::clone(&self.tenant));
        // The next one gets the room when the memory is really free.
        runtime.spawn_blocking(move || {
            trim();
            drop(held);
        });
        if !TRIM_IS_DUE.swap(true, Ordering::AcqRel) {
            runtime.spawn(async {
                tokio::time::sleep(TRIM_DELAY).await;
                TRIM_IS_DUE.store(false, Ordering::Release);
                let _ = tokio::task::spawn_blocking(trim).await;
            });
        }
    }
}

/// Returns free memory to the system, which the allocator would otherwise keep for a while.
#[expect(unsafe_code, reason = "there is no safe way to call `mi_collect`")]
fn trim() {
    // SAFETY: it may be called at any time, by any thread; it touches only memory that is free.
    unsafe { libmimalloc_sys::mi_collect(true) };
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scope(text: &str) -> Scope {
        text.parse().expect("a scope")
    }

    #[tokio::test]
    async fn large_messages_of_a_tenant_wait_for_each_other_and_for_nobody_else() {
        let memory = Memory::start().expect("threads");
        let large = format!("[{}0]", "0,".repeat(190_000));
        let (one, two) = (scope("a.one"), scope("b.two"));
        let first =
            memory.parsed(&one, large.as_bytes(), Parsed::Message).await.expect("there is room");
        let mut second = Box::pin(memory.parsed(&one, large.as_bytes(), Parsed::Message));
        assert!(futures::poll!(&mut second).is_pending());
        let small = memory
            .parsed(&one, b"{}", Parsed::Message)
            .await
            .expect("small ones have room of their own");
        let other = memory
            .parsed(&two, large.as_bytes(), Parsed::Message)
            .await
            .expect("another has its own");
        drop(first);
        let second = second.await.expect("there is room again");
        drop((small, other, second));
        let many = "0,".repeat(TOKENS + 1);
        let refused = memory
            .parsed(&one, many.as_bytes(), Parsed::Message)
            .await
            .expect_err("too many values");
        assert_eq!(refused.status(), StatusCode::PAYLOAD_TOO_LARGE);
    }

    #[tokio::test]
    async fn who_waits_too_long_is_told_to_try_again() {
        let memory = Memory::with_patience(Duration::from_millis(10)).expect("threads");
        let large = "0,".repeat(190_000);
        let _first = memory
            .parsed(&scope("a.one"), large.as_bytes(), Parsed::Message)
            .await
            .expect("there is room");
        let refused = memory
            .parsed(&scope("a.one"), large.as_bytes(), Parsed::Message)
            .await
            .expect_err("no room");
        assert_eq!(refused.body()["code"], ErrorCode::Busy.name());
    }
}
