//! Rate limits: token buckets that all gateways share.

use std::time::Duration;

use sha2::{Digest as _, Sha256};

use crate::{Registry, RegistryError};

/// The longest wait that is reported.
const LONGEST_WAIT: Duration = Duration::from_secs(3_600);

/// The refill rate and the capacity of a bucket.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Rate {
    /// Tokens added per second.
    pub per_second: f64,
    /// Tokens in a full bucket.
    pub capacity: f64,
}

/// The result of taking tokens from a bucket.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TokenGrant {
    /// The number of granted requests.
    pub granted: u32,
    /// If none was granted: the time until the next token.
    pub wait: Duration,
}

impl Registry {
    /// Takes up to `wanted` tokens, one for each request, from a bucket, in one statement.
    ///
    /// A bucket belongs to a key, an organisation or an IP address. Addresses are limited before authentication, so
    /// buckets do not belong to a tenant.
    ///
    /// # Errors
    /// Returns [`RegistryError::Unavailable`] when the database does not answer.
    pub async fn take_tokens(
        &self,
        bucket: &str,
        wanted: u32,
        rate: Rate,
    ) -> Result<TokenGrant, RegistryError> {
        // The table contains only hashes, so it reveals no keys or addresses.
        let named = Sha256::digest(bucket.as_bytes());
        let wanted = i32::try_from(wanted).unwrap_or(i32::MAX);
        let row = self
            .pool
            .outside(move |connection| {
                let drawn = sqlx::query!(
                    r#"select granted as "granted!", wait_seconds as "wait_seconds!"
                from rate_take($1, $2, $3, $4)"#,
                    named.as_slice(),
                    wanted,
                    rate.per_second,
                    rate.capacity,
                )
                .fetch_one(connection);
                Box::pin(drawn)
            })
            .await?;
        // Zero wanted tokens give a negative wait, and a tiny rate one that a `Duration` cannot
        // hold.
        let wait = Duration::try_from_secs_f64(row.wait_seconds.max(0.0)).unwrap_or(LONGEST_WAIT);
        Ok(TokenGrant { granted: row.granted.unsigned_abs(), wait: wait.min(LONGEST_WAIT) })
    }
}
