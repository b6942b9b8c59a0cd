//! How much memory the messages of tenants may take at once.
//!
//! A parsed message is many times as large as its bytes, and how many depends on its shape. So what it will cost is
//! counted before it is parsed, and waits until there is room: for its tenant, and in total. Small messages have room of
//! their own, so that they do not wait for large ones.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use axum::http::{HeaderValue, StatusCode, header};
use protocol::{ErrorCode, Scope};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::error::ApiError;

const KIB: usize = 1024;
const MIB: usize = 1024 * KIB;

/// What a byte of a message costs: it is held as it came, copied for the parser, and stands in the strings.
const BYTE: usize = 3;
/// What a value or a name costs in the trees that rmcp makes of it, measured with the worst shapes.
const TOKEN: usize = 600;
/// How many values and names a message may have.
const TOKENS: usize = 200_000;
/// The largest cost that counts as small.
const SMALL: usize = 512 * KIB;
/// Bodies up to this size are read without being counted.
const UNCOUNTED: usize = 64 * KIB;
/// How long a message waits for room.
const PATIENCE: Duration = Duration::from_secs(10);

/// How long after a large message what is left of it is given back: its bytes, its answer, the buffers of its connection.
const TRIM_DELAY: Duration = Duration::from_secs(1);

/// Whether that is about to be done.
static TRIM_IS_DUE: AtomicBool = AtomicBool::new(false);

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
#[derive(Debug)]
pub struct Memory {
    total: Room,
    tenants: Mutex<HashMap<Scope, Weak<Room>>>,
    patience: Duration,
}

/// Room that is taken until this is dropped.
#[derive(Debug)]
pub struct Held {
    /// They go with the memory.
    permits: Option<[OwnedSemaphorePermit; 2]>,
    tenant: Arc<Room>,
    is_large: bool,
}

impl Default for Memory {
    fn default() -> Self {
        let total = Room::new(256 * MIB, 256 * MIB, 256 * MIB);
        Self { total, tenants: Mutex::default(), patience: PATIENCE }
    }
}

impl Memory {
    /// Takes room for the bytes of a body that is about to be read.
    ///
    /// # Errors
    /// Returns `BUSY` when there is none for a while.
    pub async fn arriving(&self, scope: &Scope, bytes: usize) -> Result<Option<Held>, ApiError> {
        if bytes <= UNCOUNTED {
            return Ok(None);
        }
        let mut held = self.take(scope, bytes, |room| &room.arriving).await?;
        held.is_large = true;
        Ok(Some(held))
    }

    /// Takes room for what a message is parsed to.
    ///
    /// # Errors
    /// Returns `BUSY` when there is none for a while, and refuses a message that has too many values.
    pub async fn parsed(&self, scope: &Scope, message: &[u8]) -> Result<Held, ApiError> {
        let tokens = protocol::json::values(message);
        if tokens > TOKENS {
            let what = format!("a message has at most {TOKENS} values and names");
            return Err(ApiError::new(ErrorCode::InvalidRequest, what)
                .with_status(StatusCode::PAYLOAD_TOO_LARGE));
        }
        let cost = message.len() * BYTE + tokens * TOKEN;
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
        // First the tenant's own, so that one that waits for itself keeps nothing from others.
        let both = async {
            let own = lane(&tenant).take(bytes).await;
            [own, lane(&self.total).take(bytes).await]
        };
        match tokio::time::timeout(self.patience, both).await {
            Ok(permits) => Ok(Held { permits: Some(permits), tenant, is_large: false }),
            Err(_) => {
                let what = "too many large messages at once; try again";
                let retry = HeaderValue::from_static("1");
                Err(ApiError::new(ErrorCode::Busy, what).with_header(header::RETRY_AFTER, retry))
            }
        }
    }

    fn tenant(&self, scope: &Scope) -> Arc<Room> {
        let mut tenants = self.tenants.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = tenants.get(scope).and_then(Weak::upgrade) {
            return known;
        }
        // Those that have no message are forgotten here, so that there are never many of them.
        tenants.retain(|_, tenant| tenant.strong_count() > 0);
        let tenant = Arc::new(Room::of_tenant());
        tenants.insert(scope.clone(), Arc::downgrade(&tenant));
        tenant
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

/// Gives memory that is free back to the system: the allocator of glibc keeps it otherwise.
#[cfg(target_env = "gnu")]
#[expect(unsafe_code, reason = "there is no safe way to call `malloc_trim`")]
fn trim() {
    // SAFETY: it takes the locks of the allocator itself, and touches only memory that is free.
    unsafe { libc::malloc_trim(0) };
}

#[cfg(not(target_env = "gnu"))]
fn trim() {}

#[cfg(test)]
mod tests {
    use super::*;

    fn scope(text: &str) -> Scope {
        text.parse().expect("a scope")
    }

    #[tokio::test]
    async fn large_messages_of_a_tenant_wait_for_each_other_and_for_nobody_else() {
        let memory = Memory::default();
        let large = format!("[{}0]", "0,".repeat(190_000));
        let (one, two) = (scope("a.one"), scope("b.two"));
        let first = memory.parsed(&one, large.as_bytes()).await.expect("there is room");
        let mut second = Box::pin(memory.parsed(&one, large.as_bytes()));
        assert!(futures::poll!(&mut second).is_pending());
        let small = memory.parsed(&one, b"{}").await.expect("small ones have room of their own");
        let other = memory.parsed(&two, large.as_bytes()).await.expect("another has its own");
        drop(first);
        let second = second.await.expect("there is room again");
        drop((small, other, second));
        let many = "0,".repeat(TOKENS + 1);
        let refused = memory.parsed(&one, many.as_bytes()).await.expect_err("too many values");
        assert_eq!(refused.status(), StatusCode::PAYLOAD_TOO_LARGE);
        assert!(memory.arriving(&one, 100).await.expect("it is not counted").is_none());
    }

    #[tokio::test]
    async fn who_waits_too_long_is_told_to_try_again() {
        let memory = Memory { patience: Duration::from_millis(10), ..Memory::default() };
        let large = "0,".repeat(190_000);
        let _first = memory.parsed(&scope("a.one"), large.as_bytes()).await.expect("there is room");
        let refused = memory.parsed(&scope("a.one"), large.as_bytes()).await.expect_err("no room");
        assert_eq!(refused.code(), ErrorCode::Busy);
    }
}
