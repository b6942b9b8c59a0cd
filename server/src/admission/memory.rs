//! The memory limits of messages and of the answers of upstreams, per tenant and in total.
//!
//! A parsed message is many times larger than its bytes, by a factor that depends on its shape. So its cost is
//! estimated before it is parsed, and it waits until that much memory is available, for its tenant and in total. Small
//! messages have a separate budget, so that they do not wait for large ones.

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
use crate::metrics::{Limit, Metrics};

const KIB: usize = 1024;
const MIB: usize = 1024 * KIB;

/// The cost of each byte of a message: it exists as received, in a copy for the parser, and in the parsed strings.
const BYTE_COST: usize = 3;
/// The maximum number of values and names in an MCP message.
const TOKENS: usize = 200_000;
/// The largest cost of a small message, in bytes.
const SMALL: usize = 512 * KIB;
/// How long a message waits for memory.
const MAX_WAIT: Duration = Duration::from_secs(10);

/// The delay of a second trim after a large message. By then, its answer and its connection's buffers are freed too.
const TRIM_DELAY: Duration = Duration::from_secs(1);

/// Whether a delayed trim is already scheduled.
static TRIM_IS_SCHEDULED: AtomicBool = AtomicBool::new(false);

/// What a message is parsed to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Parsed {
    /// The types of rmcp, which parses the message into two trees on the way.
    Message,
    /// One tree, or one of our types.
    Tree,
    /// Only the names of its members.
    Names,
}

impl Parsed {
    /// Returns the cost of each value and name, in bytes, measured with the worst shapes.
    const fn token_cost(self) -> usize {
        match self {
            Self::Message => 600,
            Self::Tree => 250,
            Self::Names => 64,
        }
    }
}

/// The memory budgets of one tenant, or of all tenants together.
#[derive(Debug)]
struct Budgets {
    /// For bytes as they arrive.
    arriving: ByteBudget,
    /// For parsing small messages.
    small: ByteBudget,
    /// For parsing large messages.
    large: ByteBudget,
}

/// An amount of memory, in KiB.

#[derive(Debug)]
struct ByteBudget {
    size: u32,
    free: Arc<Semaphore>,
}

impl ByteBudget {
    fn new(bytes: usize) -> Self {
        let size = u32::try_from(bytes / KIB).unwrap_or(u32::MAX);
        Self { size, free: Arc::new(Semaphore::new(bytes / KIB)) }
    }

    /// Waits until memory is available, and reserves it. A request for more than the whole budget reserves all of it,
    /// so that it can succeed.
    async fn reserve(&self, bytes: usize) -> OwnedSemaphorePermit {
        let wanted = u32::try_from(bytes.div_ceil(KIB)).unwrap_or(u32::MAX).min(self.size);
        let free = Arc::clone(&self.free);
        free.acquire_many_owned(wanted).await.expect("the semaphore is never closed")
    }
}

impl Budgets {
    fn new(arriving: usize, small: usize, large: usize) -> Self {
        Self {
            arriving: ByteBudget::new(arriving),
            small: ByteBudget::new(small),
            large: ByteBudget::new(large),
        }
    }

    fn of_tenant() -> Self {
        // The largest MCP message (2.5 MiB with 200,000 values) costs 122 MiB to parse. So the
        // total of large messages suffices for two tenants at once.
        Self::new(48 * MIB, 32 * MIB, 128 * MIB)
    }
}

/// The memory budgets of the gateway.
#[derive(Debug, Clone)]
pub(crate) struct Memory(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    total: Budgets,
    tenants: Mutex<HashMap<Scope, Weak<Budgets>>>,
    max_wait: Duration,
    threads: Threads,
    metrics: Arc<Metrics>,
}

/// The budgets that apply to one tenant: its own, and the total.
#[derive(Debug, Clone)]
pub(crate) struct TenantMemory {
    all: Memory,
    scope: Scope,
}

/// Memory that is reserved until this is dropped.
#[derive(Debug)]
pub(crate) struct Reserved {
    /// The permits of the tenant and of the total. They are returned only after the memory has been freed.
    permits: Option<[OwnedSemaphorePermit; 2]>,
    // Keeps the tenant's budgets in the map, which has only weak references: otherwise the next
    // message would get new, unused ones.
    tenant: Arc<Budgets>,
    is_large: bool,
}

impl Memory {
    /// Creates the budgets, and starts the threads for large messages.
    ///
    /// # Errors
    /// Returns an error when the threads cannot be started.
    pub(crate) fn start(metrics: Arc<Metrics>) -> io::Result<Self> {
        Self::with_max_wait(MAX_WAIT, metrics)
    }

    fn with_max_wait(max_wait: Duration, metrics: Arc<Metrics>) -> io::Result<Self> {
        let total = Budgets::new(256 * MIB, 256 * MIB, 256 * MIB);
        let threads = Threads::start()?;
        Ok(Self(Arc::new(Shared { total, tenants: Mutex::default(), max_wait, threads, metrics })))
    }

    /// Runs work on a message whose memory is reserved: on separate threads for a large message, so that it does not
    /// delay other requests.
    pub(crate) async fn work<F>(&self, reserved: &Reserved, work: F) -> F::Output
    where
        F: Future<Output: Send> + Send + 'static,
    {
        if reserved.is_large { self.0.threads.run(work).await } else { work.await }
    }

    /// Returns the budgets of a tenant.
    pub(crate) fn of(&self, scope: &Scope) -> TenantMemory {
        TenantMemory { all: self.clone(), scope: scope.clone() }
    }

    /// Reserves the memory for parsing a message.
    ///
    /// # Errors
    /// Returns `BUSY` if the memory does not become available in time, and `INVALID_REQUEST` for an MCP message with
    /// too many values.
    pub(crate) async fn parsed(
        &self,
        scope: &Scope,
        message: &[u8],
        parsed: Parsed,
    ) -> Result<Reserved, ApiError> {
        // Counted without parsing: the number of values and names determines the size of the parsed message.
        let tokens = protocol::json::values(message);
        if tokens > TOKENS && parsed == Parsed::Message {
            let what = format!("the message has more than {TOKENS} values and names, the limit");
            return Err(ApiError::new(ErrorCode::InvalidRequest, what)
                .with_status(StatusCode::PAYLOAD_TOO_LARGE));
        }
        let cost = message.len() * BYTE_COST + tokens * parsed.token_cost();
        if cost <= SMALL {
            return self.reserve(scope, cost, |budgets| &budgets.small).await;
        }
        let mut reserved = self.reserve(scope, cost, |budgets| &budgets.large).await?;
        reserved.is_large = true;
        Ok(reserved)
    }

    async fn reserve(
        &self,
        scope: &Scope,
        bytes: usize,
        budget: impl Fn(&Budgets) -> &ByteBudget,
    ) -> Result<Reserved, ApiError> {
        let tenant = self.tenant(scope);
        // The tenant's own budget comes first: a message that waits for it must not hold memory of the total.
        let both = async {
            let own = budget(&tenant).reserve(bytes).await;
            [own, budget(&self.0.total).reserve(bytes).await]
        };
        match tokio::time::timeout(self.0.max_wait, both).await {
            Ok(permits) => Ok(Reserved { permits: Some(permits), tenant, is_large: false }),
            Err(_) => {
                self.0.metrics.refusals.add(Limit::Memory);
                let what = "too many large messages at once; retry";
                let retry = HeaderValue::from_static("1");
                Err(ApiError::new(ErrorCode::Busy, what).with_header(header::RETRY_AFTER, retry))
            }
        }
    }

    fn tenant(&self, scope: &Scope) -> Arc<Budgets> {
        let mut tenants = self.0.tenants.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = tenants.get(scope).and_then(Weak::upgrade) {
            return known;
        }
        // Remove tenants without messages, so that the map stays small.
        tenants.retain(|_, tenant| tenant.strong_count() > 0);
        let tenant = Arc::new(Budgets::of_tenant());
        tenants.insert(scope.clone(), Arc::downgrade(&tenant));
        tenant
    }
}

impl Budget for TenantMemory {
    type Held = Reserved;
    type Error = ApiError;

    async fn arriving(&self, bytes: usize) -> Result<Reserved, ApiError> {
        let mut reserved =
            self.all.reserve(&self.scope, bytes, |budgets| &budgets.arriving).await?;
        // After a large body, too, free memory is returned to the system.
        reserved.is_large = bytes > SMALL;
        Ok(reserved)
    }

    async fn parsed(&self, message: &[u8]) -> Result<Reserved, ApiError> {
        self.all.parsed(&self.scope, message, Parsed::Message).await
    }

    fn shrink(reserved: &mut Reserved, bytes: usize) {
        let needed = bytes.div_ceil(KIB);
        for permit in reserved.permits.iter_mut().flatten() {
            // A budget that is smaller than the text was reserved as a whole, so fewer permits than
            // needed may be held.
            let unused = permit.num_permits().saturating_sub(needed);
            drop(permit.split(unused));
        }
    }
}

impl Drop for Reserved {
    fn drop(&mut self) {
        let (true, Ok(runtime)) = (self.is_large, tokio::runtime::Handle::try_current()) else {
            return;
        };
        let reserved = (self.permits.take(), Arc::clone(&self.tenant));
        // The permits are returned after the trim, when the memory is really available for the next message.
        runtime.spawn_blocking(move || {
            trim();
            drop(reserved);
        });
        if !TRIM_IS_SCHEDULED.swap(true, Ordering::AcqRel) {
            runtime.spawn(async {
                tokio::time::sleep(TRIM_DELAY).await;
                // Reset first, so that a message that is freed during the trim schedules another
                // one.
                TRIM_IS_SCHEDULED.store(false, Ordering::Release);
                // Fails only when the runtime shuts down.
                let _ = tokio::task::spawn_blocking(trim).await;
            });
        }
    }
}

/// Returns free memory to the system; otherwise the allocator keeps it for a while.
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
    async fn large_messages_wait_only_for_those_of_the_same_tenant() {
        let memory = Memory::start(Metrics::unread()).expect("threads");
        let large = format!("[{}0]", "0,".repeat(190_000));
        let (one, two) = (scope("a.one"), scope("b.two"));
        let first = memory.parsed(&one, large.as_bytes(), Parsed::Message).await.expect("memory");
        let mut second = Box::pin(memory.parsed(&one, large.as_bytes(), Parsed::Message));
        assert!(futures::poll!(&mut second).is_pending());
        let small = memory
            .parsed(&one, b"{}", Parsed::Message)
            .await
            .expect("small messages have a separate budget");
        let other = memory
            .parsed(&two, large.as_bytes(), Parsed::Message)
            .await
            .expect("another tenant has its own budget");
        drop(first);
        let second = second.await.expect("the memory is available again");
        drop((small, other, second));
        let many = "0,".repeat(TOKENS + 1);
        let refused = memory
            .parsed(&one, many.as_bytes(), Parsed::Message)
            .await
            .expect_err("too many values");
        assert_eq!(refused.status(), StatusCode::PAYLOAD_TOO_LARGE);
    }

    #[tokio::test]
    async fn a_message_that_waits_too_long_gets_busy() {
        let memory =
            Memory::with_max_wait(Duration::from_millis(10), Metrics::unread()).expect("threads");
        let large = "0,".repeat(190_000);
        let _first = memory
            .parsed(&scope("a.one"), large.as_bytes(), Parsed::Message)
            .await
            .expect("memory");
        let refused = memory
            .parsed(&scope("a.one"), large.as_bytes(), Parsed::Message)
            .await
            .expect_err("the budget is used up");
        assert_eq!(refused.body()["code"], ErrorCode::Busy.name());
    }
}
