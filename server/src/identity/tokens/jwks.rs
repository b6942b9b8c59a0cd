//! The issuer's public keys: fetched within limits, cached, and looked up by `kid`.

use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, Instant};

use data_encoding::BASE64URL_NOPAD;
use jsonwebtoken::jwk::{AlgorithmParameters, EllipticCurve, Jwk, KeyAlgorithm, PublicKeyUse};
use jsonwebtoken::{Algorithm, AlgorithmFamily, DecodingKey};
use serde::Deserialize;

use super::TokenError;
use crate::http_client;

/// The time limit of one fetch.
const FETCH_LIMIT: Duration = Duration::from_secs(5);
/// The largest accepted key set, in bytes.
const SIZE_LIMIT: usize = 256 * 1024;
/// The maximum number of cached keys.
const KEYS_LIMIT: usize = 100;
/// The accepted sizes of an RSA modulus, in bits. Shorter ones can be factored; `rsa` does not verify with longer
/// ones.
const RSA_BITS: std::ops::RangeInclusive<usize> = 2_048..=4_096;
/// Keys older than this are refreshed in the background, while the old ones are still used.
const FRESH: Duration = Duration::from_secs(300);
/// The minimum time between two fetches because of an unknown key id: anyone can send a token with one.
const UNKNOWN_PAUSE: Duration = Duration::from_secs(60);
/// The minimum time between a failed fetch and the next one.
const FAILED_PAUSE: Duration = Duration::from_secs(1);

/// The keys of one issuer.
pub(super) struct Jwks {
    url: reqwest::Url,
    http: reqwest::Client,
    max_age: Duration,
    current: RwLock<Option<Arc<KeySet>>>,
    /// Held while keys are fetched, so that concurrent requests share one fetch.
    fetching: tokio::sync::Mutex<Fetching>,
}

#[derive(Default)]
struct Fetching {
    failed: Option<Instant>,
    for_unknown: Option<Instant>,
}

struct KeySet {
    keys: Vec<PublicKey>,
    fetched: Instant,
}

/// A public key of the issuer.
struct PublicKey {
    kid: String,
    /// The only algorithm that the issuer uses it with, if declared.
    only: Option<Algorithm>,
    key: Arc<DecodingKey>,
}

impl Jwks {
    pub(super) fn new(url: reqwest::Url, max_age: Duration) -> Result<Self, reqwest::Error> {
        // This client follows no redirects: keys come from the configured address only.
        let http = http_client::for_named(FETCH_LIMIT).build()?;
        Ok(Self { url, http, max_age, current: RwLock::default(), fetching: Default::default() })
    }

    /// Finds the key that a token names.
    pub(super) async fn find(
        self: &Arc<Self>,
        kid: &str,
        algorithm: Algorithm,
    ) -> Result<Arc<DecodingKey>, TokenError> {
        let set = self.valid_keys().await?;
        if let Some(key) = set.get(kid, algorithm) {
            // Refreshed in the background, so that no request waits for the issuer as long as it is reachable.
            if set.fetched.elapsed() >= FRESH.min(self.max_age / 2) {
                let this = Arc::clone(self);
                tokio::spawn(async move { this.refresh(&set).await });
            }
            return Ok(key);
        }
        // The issuer may have added a key since: fetch the keys, unless another request has just done so.
        let unknown = TokenError::Invalid("its key is not one of the issuer's");
        let mut fetching = self.fetching.lock().await;
        let now = self.current().filter(|now| !Arc::ptr_eq(now, &set));
        if now.is_none() {
            let is_recent = fetching.for_unknown.is_some_and(|at| at.elapsed() < UNKNOWN_PAUSE);
            if is_recent {
                return Err(unknown);
            }
            // Set before the fetch, so that a failed one counts too: otherwise tokens with invented
            // key ids could cause a fetch each.
            fetching.for_unknown = Some(Instant::now());
            self.fetch(&mut fetching).await.map_err(|_| TokenError::Unavailable)?;
        }
        drop(fetching);
        self.current().and_then(|set| set.get(kid, algorithm)).ok_or(unknown)
    }

    /// Returns keys that are younger than the maximum age, fetched if necessary.
    async fn valid_keys(&self) -> Result<Arc<KeySet>, TokenError> {
        let is_valid = |set: &Arc<KeySet>| set.fetched.elapsed() < self.max_age;
        if let Some(set) = self.current().filter(is_valid) {
            return Ok(set);
        }
        // Not limited by `UNKNOWN_PAUSE`: without valid keys, no token can be verified at all.
        let mut fetching = self.fetching.lock().await;
        // Another request may have fetched them while this one waited for the lock.
        if let Some(set) = self.current().filter(is_valid) {
            return Ok(set);
        }
        self.fetch(&mut fetching).await.map_err(|_| TokenError::Unavailable)
    }

    /// Refreshes the keys, unless this is already done; if it fails, the old ones stay valid until the maximum age.
    async fn refresh(&self, old: &Arc<KeySet>) {
        // Whoever holds the lock is fetching the keys.
        let Ok(mut fetching) = self.fetching.try_lock() else { return };
        if self.current().is_some_and(|now| Arc::ptr_eq(&now, old)) {
            // `fetch` has logged a failure.
            let _ = self.fetch(&mut fetching).await;
        }
    }

    async fn fetch(&self, fetching: &mut Fetching) -> Result<Arc<KeySet>, FetchError> {
        if fetching.failed.is_some_and(|at| at.elapsed() < FAILED_PAUSE) {
            return Err(FetchError::TooSoon);
        }
        match self.download().await {
            Ok(keys) => {
                tracing::info!(keys = keys.len(), "Fetched the issuer's keys");
                let set = Arc::new(KeySet { keys, fetched: Instant::now() });
                *self.current.write().unwrap_or_else(PoisonError::into_inner) =
                    Some(Arc::clone(&set));
                fetching.failed = None;
                Ok(set)
            }
            Err(error) => {
                tracing::warn!(error = %error, "Could not fetch the issuer's keys");
                fetching.failed = Some(Instant::now());
                Err(error)
            }
        }
    }

    async fn download(&self) -> Result<Vec<PublicKey>, FetchError> {
        let request = self.http.get(self.url.clone()).header("accept", "application/json");
        let mut response = request.send().await.map_err(reqwest::Error::without_url)?;
        if response.status() != reqwest::StatusCode::OK {
            return Err(FetchError::Status(response.status().as_u16()));
        }
        let mut body = Vec::new();
        // Read in chunks, because `Content-Length` may be missing or wrong.
        while let Some(chunk) = response.chunk().await.map_err(reqwest::Error::without_url)? {
            if body.len() + chunk.len() > SIZE_LIMIT {
                return Err(FetchError::TooLarge);
            }
            body.extend_from_slice(&chunk);
        }
        let set: WireSet = serde_json::from_slice(&body).map_err(FetchError::Json)?;
        // RFC 7517, 5: a key that cannot be parsed is ignored, and the others remain valid.
        let known = set.keys.into_iter().filter_map(|key| serde_json::from_value(key).ok());
        // Limited after the filter, so that keys for other uses do not displace the usable ones.
        Ok(known.filter_map(PublicKey::of).take(KEYS_LIMIT).collect())
    }

    fn current(&self) -> Option<Arc<KeySet>> {
        self.current.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl KeySet {
    /// Returns the key with that id, if it can be used with the algorithm.
    fn get(&self, kid: &str, algorithm: Algorithm) -> Option<Arc<DecodingKey>> {
        let matches = |key: &&PublicKey| {
            key.kid == kid
                && key.only.is_none_or(|only| only == algorithm)
                // The declared algorithm may contradict the key, or be absent.
                && key.key.family() == algorithm.family()
        };
        self.keys.iter().find(matches).map(|key| Arc::clone(&key.key))
    }
}

/// Why keys could not be fetched.
#[derive(Debug, thiserror::Error)]
enum FetchError {
    #[error("the last attempt failed a moment ago")]
    TooSoon,
    #[error("{0}")]
    Http(#[from] reqwest::Error),
    #[error("the issuer answered with status {0}")]
    Status(u16),
    #[error("the answer is larger than {SIZE_LIMIT} bytes")]
    TooLarge,
    #[error("the answer is not a set of keys: {0}")]
    Json(serde_json::Error),
}

/// A key set (RFC 7517, 5).
#[derive(Deserialize)]
struct WireSet {
    keys: Vec<serde_json::Value>,
}

impl PublicKey {
    /// Converts a key of the set; `None` for a key that cannot sign tokens for us.
    fn of(jwk: Jwk) -> Option<Self> {
        if jwk.common.public_key_use.is_some_and(|usage| usage != PublicKeyUse::Signature) {
            return None;
        }
        let only = match jwk.common.key_algorithm {
            None => None,
            Some(KeyAlgorithm::RS256) => Some(Algorithm::RS256),
            Some(KeyAlgorithm::PS256) => Some(Algorithm::PS256),
            Some(KeyAlgorithm::ES256) => Some(Algorithm::ES256),
            Some(KeyAlgorithm::EdDSA) => Some(Algorithm::EdDSA),
            // Not accepted: encryption, longer hashes, and HMAC, whose key would be public here.
            Some(_) => return None,
        };
        let bytes = |text: &str| BASE64URL_NOPAD.decode(text.as_bytes()).ok();
        // The library does not check sizes, and panics on an Ed25519 key that is too short.
        let of_32 = |text: &str| bytes(text).is_some_and(|bytes| bytes.len() == 32);
        let key = match &jwk.algorithm {
            AlgorithmParameters::RSA(rsa) => {
                let mut n = bytes(&rsa.n)?;
                // Some issuers prepend a zero byte, which is the sign of the number in other encodings.
                n.drain(..n.iter().take_while(|byte| **byte == 0).count());
                let bits = n.len() * 8 - n.first()?.leading_zeros() as usize;
                RSA_BITS.contains(&bits).then(|| {
                    bytes(&rsa.e).map(|e| DecodingKey::from_rsa_raw_components(&n, &e))
                })??
            }
            AlgorithmParameters::EllipticCurve(point)
                if point.curve == EllipticCurve::P256 && of_32(&point.x) && of_32(&point.y) =>
            {
                DecodingKey::from_ec_components(&point.x, &point.y).ok()?
            }
            AlgorithmParameters::OctetKeyPair(pair)
                if pair.curve == EllipticCurve::Ed25519 && of_32(&pair.x) =>
            {
                DecodingKey::from_ed_components(&pair.x).ok()?
            }
            _ => return None,
        };
        debug_assert_ne!(key.family(), AlgorithmFamily::Hmac);
        // A key without an id is useless: every token must name its key.
        Some(Self { kid: jwk.common.key_id?, only, key: Arc::new(key) })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn key(jwk: Value) -> Option<PublicKey> {
        PublicKey::of(serde_json::from_value(jwk).ok()?)
    }

    fn text(bytes: usize) -> String {
        BASE64URL_NOPAD.encode(&vec![0xab; bytes])
    }

    /// GW-03: keys that are too short, symmetric, of another curve or for another use are ignored, without a panic.
    #[test]
    fn keys_that_cannot_sign_tokens_are_ignored() {
        let rsa = |n: usize| json!({ "kty": "RSA", "kid": "r", "n": text(n), "e": "AQAB" });
        let okp = |x: usize| json!({ "kty": "OKP", "crv": "Ed25519", "kid": "o", "x": text(x) });
        let ec = |x: usize, y: usize| json!({ "kty": "EC", "crv": "P-256", "kid": "e", "x": text(x), "y": text(y) });
        for taken in [rsa(256), rsa(384), rsa(512), okp(32), ec(32, 32)] {
            assert!(key(taken.clone()).is_some(), "{taken}");
        }
        let with = |mut jwk: Value, name: &str, value: Value| {
            jwk[name] = value;
            jwk
        };
        let signed = [&[0], &[0xab; 256][..]].concat();
        assert!(key(with(rsa(1), "n", json!(BASE64URL_NOPAD.encode(&signed)))).is_some());
        let short = BASE64URL_NOPAD.encode(&[&[0x7f], &[0xab; 255][..]].concat());
        for refused in [
            rsa(0),
            rsa(128),
            rsa(255),
            with(rsa(1), "n", json!(short)),
            rsa(513),
            with(rsa(256), "use", json!("enc")),
            with(rsa(256), "alg", json!("RS1")),
            with(rsa(256), "alg", json!("RSA-OAEP")),
            with(rsa(256), "n", json!("?")),
            with(rsa(256), "kid", Value::Null),
            okp(0),
            okp(31),
            okp(33),
            with(okp(32), "crv", json!("Ed448")),
            with(okp(32), "crv", json!("P-256")),
            ec(31, 32),
            ec(32, 33),
            with(ec(32, 32), "crv", json!("P-384")),
            with(ec(32, 32), "crv", json!("secp256k1")),
            json!({ "kty": "oct", "kid": "s", "k": text(32) }),
            json!({ "kty": "AKP", "kid": "s", "x": text(32) }),
            json!({ "kid": "nothing" }),
            json!("a text"),
        ] {
            assert!(key(refused.clone()).is_none(), "{refused}");
        }
        let set = KeySet {
            keys: [rsa(256), with(okp(32), "alg", json!("EdDSA"))]
                .map(|jwk| key(jwk).unwrap())
                .into(),
            fetched: Instant::now(),
        };
        for (kid, algorithm, expected) in [
            ("r", Algorithm::RS256, true),
            ("r", Algorithm::PS256, true),
            ("r", Algorithm::ES256, false),
            ("o", Algorithm::EdDSA, true),
            ("o", Algorithm::RS256, false),
            ("x", Algorithm::RS256, false),
        ] {
            assert_eq!(set.get(kid, algorithm).is_some(), expected, "{kid} {algorithm:?}");
        }
    }
}
