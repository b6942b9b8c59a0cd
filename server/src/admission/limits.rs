//! Rate limits per API key, organisation and address, and quotas of tools.
//!
//! The token buckets are in the database, so that all gateways share them. A gateway draws several tokens at a time, a
//! slice, and spends them locally, so a request rarely costs a query.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::extract::{ConnectInfo, Request};
use axum::http::{HeaderMap, HeaderName, HeaderValue, header};
use ipnet::IpNet;
use moka::future::Cache;
use protocol::{ErrorBody, ErrorCode, Scope, ToolId};
use registry::{Caller, Principal, QuotaScope, Rate, Registry, TokenGrant};
use serde_json::json;
use tokio::sync::Mutex;
use uuid::Uuid;

use crate::config::{RateLimit, RateSettings};
use crate::error::ApiError;
use crate::metrics::{Label as _, Limit, Metrics};

/// The maximum number of cached slices.
const SLICES: u64 = 100_000;
/// How long an unused slice is cached.
const IDLE: Duration = Duration::from_secs(60);
/// The time limit of a draw for a request. It is a part of the two seconds within which an unresponsive database must
/// be reported.
const DRAW_LIMIT: Duration = Duration::from_millis(300);
/// The time limit of a draw for a tool call. It is longer, because a call that cannot be counted is refused.
const QUOTA_DRAW_LIMIT: Duration = Duration::from_millis(600);
/// How long a bucket is not drawn from again after the database did not answer.
const RETRY_PAUSE: Duration = Duration::from_secs(1);
/// The maximum number of tokens in a slice.
const LARGEST_SLICE: f64 = 1_000.0;
/// Routes for monitoring, which are not counted.
const UNCOUNTED: [&str; 3] = ["/health", "/ready", "/version"];

const RATE_LIMIT: HeaderName = HeaderName::from_static("ratelimit");
const RATE_LIMIT_POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");
const FORWARDED_FOR: &str = "x-forwarded-for";

/// The subject of a limit.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Bucket {
    Key(Uuid),
    /// The subject of access tokens, because a client gets a new token again and again.
    Subject(Scope, Principal),
    Organisation(String),
    Address(IpAddr),
    /// A quota of the operator; `scope` contains the caller's scope if each scope is counted separately.
    Quota {
        scope: String,
        pattern: String,
    },
}

impl Bucket {
    /// Returns the bucket's name in the database.
    fn name(&self) -> String {
        match self {
            Self::Key(id) => format!("key {id}"),
            Self::Subject(scope, principal) => format!("subject {scope} {principal}"),
            Self::Organisation(org) => format!("org {org}"),
            Self::Address(address) => format!("address {address}"),
            Self::Quota { scope, pattern } => format!("quota {scope} {pattern}"),
        }
    }

    /// Returns the kind of limit, for headers and messages.
    fn kind(&self) -> &'static str {
        self.limit().word()
    }

    fn limit(&self) -> Limit {
        match self {
            Self::Key(_) | Self::Subject(..) => Limit::Key,
            Self::Organisation(_) => Limit::Org,
            Self::Address(_) => Limit::Address,
            Self::Quota { .. } => Limit::Quota,
        }
    }
}

/// The tokens that this gateway has drawn from a bucket.
#[derive(Default)]
struct Slice {
    left: u32,
    /// Until when the bucket is known to be empty.
    empty_until: Option<Instant>,
    /// Until when the database is not queried again, because it did not answer.
    unknown_until: Option<Instant>,
}

/// The result of counting a request.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Counted {
    /// Within the limit.
    Yes,
    /// Over the limit; the next token is available after this time.
    Refused(Duration),
    /// Unknown, because the database did not answer.
    Unknown,
}

/// The rate limits, and this gateway's slices of their buckets.
pub(crate) struct Limits {
    settings: RateSettings,
    slices: Cache<Bucket, Arc<Mutex<Slice>>>,
    metrics: Arc<Metrics>,
}

impl Limits {
    /// Creates the limits, without any slice yet.
    pub(crate) fn new(settings: RateSettings, metrics: Arc<Metrics>) -> Self {
        // The tokens of an evicted slice are lost. So a gateway may admit fewer requests than the
        // limit, but never more.
        let slices = Cache::builder().max_capacity(SLICES).time_to_idle(IDLE).build();
        Self { settings, slices, metrics }
    }

    /// Counts a request against the limits of the caller's key and organisation.
    ///
    /// # Errors
    /// Returns `RATE_LIMITED` if the limit is exceeded.
    pub(crate) async fn count_caller(
        &self,
        registry: &Registry,
        caller: &Caller,
    ) -> Result<(), ApiError> {
        if let RateLimit::At(rate) = self.settings.rate_per_key {
            // A session draws from the bucket of its key, so that more sessions do not allow more requests.
            let key_id = caller.key_id.or(caller.session.and_then(|session| session.key_id));
            let bucket = match key_id {
                Some(id) => Bucket::Key(id),
                None => Bucket::Subject(caller.scope.clone(), caller.principal.clone()),
            };
            // The key first: a key over its own limit must not use up its organisation's tokens.
            self.count(registry, bucket, rate).await?;
        }
        if let RateLimit::At(rate) = self.settings.rate_per_org {
            let bucket = Bucket::Organisation(caller.scope.org().to_owned());
            self.count(registry, bucket, rate).await?;
        }
        Ok(())
    }

    /// Counts a request against the limit of its address.
    ///
    /// # Errors
    /// Returns `RATE_LIMITED` if the limit is exceeded.
    pub(crate) async fn count_address(
        &self,
        registry: &Registry,
        origin: IpAddr,
    ) -> Result<(), ApiError> {
        let RateLimit::At(rate) = self.settings.rate_per_address else { return Ok(()) };
        self.count(registry, Bucket::Address(origin), rate).await
    }

    /// Counts a tool call against all quotas that match it.
    ///
    /// # Errors
    /// Returns `RATE_LIMITED` if a quota is exceeded. Returns `DATABASE_UNAVAILABLE` if that is unknown: the calls of a
    /// running program do not otherwise need the database, so nothing else would stop them.
    pub(crate) async fn count_call(
        &self,
        registry: &Registry,
        scope: &Scope,
        tool: &ToolId,
    ) -> Result<(), ErrorBody> {
        let routes = registry.routes();
        // The tokens of earlier quotas are not returned if a later one refuses the call.
        for quota in routes.quotas.iter().filter(|quota| quota.counts(scope, tool)) {
            let Some(rate) = quota.rate() else {
                self.metrics.refusals.add(Limit::Quota);
                let message = format!("the operator has forbidden calls of tool `{tool}` here");
                return Err(ErrorBody::new(ErrorCode::RateLimited, message));
            };
            let whose = match &quota.scope {
                // The `*` distinguishes this bucket from that of a quota for this scope alone.
                QuotaScope::Each => format!("* {scope}"),
                other => other.to_string(),
            };
            let bucket = Bucket::Quota { scope: whose, pattern: quota.pattern.to_string() };
            let wait = match self.take_one(registry, &bucket, rate, QUOTA_DRAW_LIMIT).await {
                Counted::Yes => continue,
                Counted::Refused(wait) => wait,
                Counted::Unknown => {
                    let message = format!("calls of tool `{tool}` cannot be counted now");
                    return Err(ErrorBody::new(ErrorCode::DatabaseUnavailable, message));
                }
            };
            let (calls, window) = (quota.calls, quota.window.seconds());
            let message = format!(
                "quota of tool `{tool}` exceeded: {calls} calls of `{}` in {window} s",
                quota.pattern
            );
            let mut error = ErrorBody::new(ErrorCode::RateLimited, message);
            error.details = json!({ "retry_after_s": seconds(wait) });
            return Err(error);
        }
        Ok(())
    }

    async fn count(&self, registry: &Registry, bucket: Bucket, rate: Rate) -> Result<(), ApiError> {
        match self.take_one(registry, &bucket, rate, DRAW_LIMIT).await {
            Counted::Refused(wait) => Err(too_many(&bucket, rate, wait)),
            // The request itself needs the database too, and will report the failure.
            Counted::Yes | Counted::Unknown => Ok(()),
        }
    }

    /// Takes one token from a bucket, and counts a refusal.
    async fn take_one(
        &self,
        registry: &Registry,
        bucket: &Bucket,
        rate: Rate,
        limit: Duration,
    ) -> Counted {
        let counted = self.take_uncounted(registry, bucket, rate, limit).await;
        if matches!(counted, Counted::Refused(_)) {
            self.metrics.refusals.add(bucket.limit());
        }
        counted
    }

    async fn take_uncounted(
        &self,
        registry: &Registry,
        bucket: &Bucket,
        rate: Rate,
        limit: Duration,
    ) -> Counted {
        let slice = self.slices.get_with_by_ref(bucket, async { Arc::default() }).await;
        // Held during a draw: concurrent requests share one slice instead of drawing one each.
        let mut slice = slice.lock().await;
        if slice.left == 0 {
            let now = Instant::now();
            if let Some(until) = slice.empty_until.filter(|until| *until > now) {
                return Counted::Refused(until - now);
            }
            // The lock serializes requests, so if each one tried the database, they would time out one after the other.
            if slice.unknown_until.is_some_and(|until| until > now) {
                return Counted::Unknown;
            }
            match draw(registry, bucket, rate, limit).await {
                // Remembered, so that refused requests cost no queries.
                Some(drawn) if drawn.granted == 0 => {
                    slice.empty_until = Some(now + drawn.wait);
                    tracing::info!(limit = bucket.kind(), "Refused a request over its limit");
                    return Counted::Refused(drawn.wait);
                }
                Some(drawn) => slice.left = drawn.granted,
                None => {
                    slice.unknown_until = Some(Instant::now() + RETRY_PAUSE);
                    return Counted::Unknown;
                }
            }
        }
        slice.left -= 1;
        Counted::Yes
    }
}

/// Draws a slice; `None` if the database does not answer within `limit`.
async fn draw(
    registry: &Registry,
    bucket: &Bucket,
    rate: Rate,
    limit: Duration,
) -> Option<TokenGrant> {
    let name = bucket.name();
    // After a timeout, the registry still completes the statement: dropping it half-way would cost its connection.
    match tokio::time::timeout(limit, registry.take_tokens(&name, slice_size(rate), rate)).await {
        Ok(Ok(drawn)) => return Some(drawn),
        Ok(Err(error)) => tracing::warn!(error = %error, "Could not count requests"),
        Err(_) => tracing::warn!("Could not count requests in time"),
    }
    None
}

/// Returns the address that a request is counted for; `None` if it is not counted.
pub(crate) fn origin(limits: &Limits, request: &Request) -> Option<IpAddr> {
    let peer = request.extensions().get::<ConnectInfo<SocketAddr>>()?.0.ip();
    let proxies = &limits.settings.trusted_proxies;
    (!UNCOUNTED.contains(&request.uri().path()))
        .then(|| network(client_address(peer, request.headers(), proxies)))
}

/// Returns the client of a request: the peer, or the client that trusted proxies report.
///
/// Each proxy appends the address of its caller to `X-Forwarded-For`. So the list is read from its end, and only as far
/// as its addresses are trusted proxies: the beginning may have been sent by the client itself.
fn client_address(peer: IpAddr, headers: &HeaderMap, proxies: &[IpNet]) -> IpAddr {
    let is_ours = |address: IpAddr| proxies.iter().any(|net| net.contains(&address));
    // A dual-stack socket reports IPv4 peers as `::ffff:a.b.c.d`, which is in no IPv4 network.
    let mut client = peer.to_canonical();
    let hops = headers.get_all(FORWARDED_FOR).iter().filter_map(|value| value.to_str().ok());
    let hops: Vec<&str> = hops.flat_map(|value| value.split(',')).map(str::trim).collect();
    for hop in hops.iter().rev() {
        // `client` is not one of our proxies, so it could have invented the rest of the list.
        if !is_ours(client) {
            break;
        }
        // The request is then counted for the proxy that reported this text.
        let Ok(address) = hop.parse::<IpAddr>() else { break };
        client = address.to_canonical();
    }
    client
}

/// Returns the network that one subscriber usually has: an IPv4 address, or an IPv6 /64.
pub(crate) fn network(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V4(_) => address,
        IpAddr::V6(address) => {
            IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() & (u128::MAX << 64)))
        }
    }
}

/// Returns the number of tokens to draw: about those of one second, and at most a tenth of the bucket.
fn slice_size(rate: Rate) -> u32 {
    // The result is between 1 and 1,000, so the cast is exact.
    rate.per_second.ceil().min(rate.capacity / 10.0).clamp(1.0, LARGEST_SLICE) as u32
}

/// Returns a time in whole seconds, rounded up: an earlier retry would be refused again.
fn seconds(wait: Duration) -> u64 {
    wait.as_secs() + u64::from(wait.subsec_nanos() > 0)
}

/// Creates the refusal, with the headers of the IETF draft (draft-ietf-httpapi-ratelimit-headers).
fn too_many(bucket: &Bucket, rate: Rate, wait: Duration) -> ApiError {
    let kind = bucket.kind();
    let seconds = seconds(wait);
    let (quota, window) = (rate.capacity, (rate.capacity / rate.per_second).round());
    let detail = format!("this {kind} exceeded its limit of {quota} requests in {window} s");
    let mut error = ApiError::new(ErrorCode::RateLimited, detail)
        .with_header(header::RETRY_AFTER, HeaderValue::from(seconds.max(1)));
    for (name, value) in [
        (RATE_LIMIT, format!("\"{kind}\";r=0;t={}", seconds.max(1))),
        (RATE_LIMIT_POLICY, format!("\"{kind}\";q={quota};w={window}")),
    ] {
        if let Ok(value) = HeaderValue::from_str(&value) {
            error = error.with_header(name, value);
        }
    }
    error
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client(peer: &str, forwarded: &[&str], proxies: &[&str]) -> String {
        let mut headers = HeaderMap::new();
        for value in forwarded {
            headers.append(FORWARDED_FOR, value.parse().unwrap());
        }
        let proxies: Vec<IpNet> = proxies.iter().map(|net| net.parse().unwrap()).collect();
        client_address(peer.parse().unwrap(), &headers, &proxies).to_string()
    }

    /// GW-27: `X-Forwarded-For` is used only as far as it comes from trusted proxies.
    #[test]
    fn only_trusted_proxies_report_addresses() {
        let proxies = ["10.0.0.0/8", "fd00::/8"];
        assert_eq!(client("192.0.2.1", &["203.0.113.9"], &proxies), "192.0.2.1");
        assert_eq!(client("192.0.2.1", &["203.0.113.9"], &[]), "192.0.2.1");
        assert_eq!(client("10.0.0.1", &["203.0.113.9"], &proxies), "203.0.113.9");
        assert_eq!(
            client("10.0.0.1", &["1.1.1.1, 203.0.113.9, 10.0.0.2"], &proxies),
            "203.0.113.9"
        );
        assert_eq!(client("10.0.0.1", &["1.1.1.1", "203.0.113.9"], &proxies), "203.0.113.9");
        assert_eq!(client("10.0.0.1", &["203.0.113.9, nonsense"], &proxies), "10.0.0.1");
        assert_eq!(client("10.0.0.1", &[], &proxies), "10.0.0.1");
        assert_eq!(client("10.0.0.1", &["10.0.0.7"], &proxies), "10.0.0.7");
        assert_eq!(client("::ffff:10.0.0.1", &["2001:db8::1"], &proxies), "2001:db8::1");
        assert_eq!(client("fd00::1", &["::ffff:203.0.113.9"], &proxies), "203.0.113.9");
    }

    #[test]
    fn an_ipv6_subscriber_is_a_64_bit_network() {
        let of = |text: &str| network(text.parse().unwrap()).to_string();
        assert_eq!(of("192.0.2.1"), "192.0.2.1");
        assert_eq!(of("2001:db8:1:2:3:4:5:6"), "2001:db8:1:2::");
    }

    #[test]
    fn a_slice_is_a_small_part_of_its_bucket() {
        let slice = |per_second, capacity| slice_size(Rate { per_second, capacity });
        assert_eq!(slice(0.01, 5.0), 1);
        assert_eq!(slice(2_000.0, 120_000.0), 1_000);
        assert_eq!(slice(100.0, 6_000.0), 100);
        assert_eq!(slice(100.0, 100.0), 10);
    }
}
