//! The issuer's public keys: fetched within limits, kept, looked up by `kid`.

use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, Instant};

use data_encoding::BASE64URL_NOPAD;
use serde::Deserialize;

use super::TokenError;
use super::jws::{Algorithm, PublicKey};

/// How long one fetch may take.
const FETCH_LIMIT: Duration = Duration::from_secs(5);
/// The largest set that is read, in bytes.
const SIZE_LIMIT: usize = 256 * 1024;
/// The most keys that are kept.
const KEYS_LIMIT: usize = 100;
/// Keys of this age are fetched anew while the old ones still count.
const FRESH: Duration = Duration::from_secs(300);
/// The pause between two fetches for a key that was not there: anybody can name one.
const UNKNOWN_PAUSE: Duration = Duration::from_secs(60);
/// The pause after a fetch that failed.
const FAILED_PAUSE: Duration = Duration::from_secs(1);

/// The keys of one issuer.
pub(super) struct Jwks {
    url: reqwest::Url,
    http: reqwest::Client,
    max_age: Duration,
    current: RwLock<Option<Arc<KeySet>>>,
    /// Held while keys are fetched, so that one request does it for all that wait.
    fetching: tokio::sync::Mutex<Fetching>,
}

#[derive(Default)]
struct Fetching {
    failed: Option<Instant>,
    for_unknown: Option<Instant>,
}

struct KeySet {
    keys: Vec<(String, Option<String>, Arc<PublicKey>)>,
    fetched: Instant,
}

impl Jwks {
    pub(super) fn new(url: reqwest::Url, max_age: Duration) -> Result<Self, reqwest::Error> {
        let http = reqwest::Client::builder()
            // A redirect could lead to another machine, or away from TLS.
            .redirect(reqwest::redirect::Policy::none())
            .timeout(FETCH_LIMIT)
            .user_agent(concat!("pml-server/", env!("CARGO_PKG_VERSION")))
            .build()?;
        Ok(Self { url, http, max_age, current: RwLock::default(), fetching: Default::default() })
    }

    /// Finds the key that a token names.
    pub(super) async fn find(
        self: &Arc<Self>,
        kid: &str,
        algorithm: Algorithm,
    ) -> Result<Arc<PublicKey>, TokenError> {
        let set = self.believed().await?;
        if let Some(key) = set.get(kid, algorithm) {
            if set.fetched.elapsed() >= FRESH.min(self.max_age / 2) {
                let this = Arc::clone(self);
                tokio::spawn(async move { this.refresh(&set).await });
            }
            return Ok(key);
        }
        let unknown = TokenError::Invalid("its key is not one of the issuer's");
        let mut fetching = self.fetching.lock().await;
        let now = self.current().filter(|now| !Arc::ptr_eq(now, &set));
        if now.is_none() {
            let lately = fetching.for_unknown.is_some_and(|at| at.elapsed() < UNKNOWN_PAUSE);
            if lately {
                return Err(unknown);
            }
            fetching.for_unknown = Some(Instant::now());
            self.fetch(&mut fetching).await.map_err(|_| TokenError::Unavailable)?;
        }
        drop(fetching);
        self.current().and_then(|set| set.get(kid, algorithm)).ok_or(unknown)
    }

    /// Returns keys that are young enough to be believed, fetched if need be.
    async fn believed(&self) -> Result<Arc<KeySet>, TokenError> {
        let young = |set: &Arc<KeySet>| set.fetched.elapsed() < self.max_age;
        if let Some(set) = self.current().filter(young) {
            return Ok(set);
        }
        let mut fetching = self.fetching.lock().await;
        if let Some(set) = self.current().filter(young) {
            return Ok(set);
        }
        self.fetch(&mut fetching).await.map_err(|_| TokenError::Unavailable)
    }

    /// Replaces keys that are no longer fresh; if that fails they go on until their end.
    async fn refresh(&self, old: &Arc<KeySet>) {
        let Ok(mut fetching) = self.fetching.try_lock() else { return };
        if self.current().is_some_and(|now| Arc::ptr_eq(&now, old)) {
            // The failure is in the log.
            let _ = self.fetch(&mut fetching).await;
        }
    }

    async fn fetch(&self, fetching: &mut Fetching) -> Result<Arc<KeySet>, FetchError> {
        if fetching.failed.is_some_and(|at| at.elapsed() < FAILED_PAUSE) {
            return Err(FetchError::Lately);
        }
        match self.download().await {
            Ok(keys) => {
                tracing::info!(keys = keys.len(), "The issuer's keys were read");
                let set = Arc::new(KeySet { keys, fetched: Instant::now() });
                *self.current.write().unwrap_or_else(PoisonError::into_inner) =
                    Some(Arc::clone(&set));
                fetching.failed = None;
                Ok(set)
            }
            Err(error) => {
                tracing::warn!(error = %error, "The issuer's keys could not be read");
                fetching.failed = Some(Instant::now());
                Err(error)
            }
        }
    }

    async fn download(&self) -> Result<Vec<(String, Option<String>, Arc<PublicKey>)>, FetchError> {
        let request = self.http.get(self.url.clone()).header("accept", "application/json");
        let mut response = request.send().await.map_err(reqwest::Error::without_url)?;
        if response.status() != reqwest::StatusCode::OK {
            return Err(FetchError::Status(response.status().as_u16()));
        }
        let mut body = Vec::new();
        while let Some(chunk) = response.chunk().await.map_err(reqwest::Error::without_url)? {
            if body.len() + chunk.len() > SIZE_LIMIT {
                return Err(FetchError::TooLarge);
            }
            body.extend_from_slice(&chunk);
        }
        let set: WireSet = serde_json::from_slice(&body).map_err(FetchError::Json)?;
        // One that cannot be read is one that we do not know, as RFC 7517 has it.
        let known = set.keys.into_iter().filter_map(|key| serde_json::from_value(key).ok());
        Ok(known.filter_map(WireKey::into_key).take(KEYS_LIMIT).collect())
    }

    fn current(&self) -> Option<Arc<KeySet>> {
        self.current.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl KeySet {
    /// Returns the key of that name, if it is one for the algorithm.
    fn get(&self, kid: &str, algorithm: Algorithm) -> Option<Arc<PublicKey>> {
        let said = match algorithm {
            Algorithm::Rs256 => "RS256",
            Algorithm::Ps256 => "PS256",
            Algorithm::Es256 => "ES256",
            Algorithm::EdDsa => "EdDSA",
        };
        let fits = |(name, alg, key): &&(String, Option<String>, Arc<PublicKey>)| {
            name == kid && alg.as_deref().is_none_or(|alg| alg == said) && key.is_for(algorithm)
        };
        self.keys.iter().find(fits).map(|(_, _, key)| Arc::clone(key))
    }
}

/// Says why keys could not be fetched.
#[derive(Debug, thiserror::Error)]
enum FetchError {
    #[error("the last try failed a moment ago")]
    Lately,
    #[error("{0}")]
    Http(#[from] reqwest::Error),
    #[error("the issuer answered with status {0}")]
    Status(u16),
    #[error("the answer is larger than {SIZE_LIMIT} bytes")]
    TooLarge,
    #[error("the answer is not a set of keys: {0}")]
    Json(serde_json::Error),
}

/// A set of keys as RFC 7517 has it.
#[derive(Deserialize)]
struct WireSet {
    keys: Vec<serde_json::Value>,
}

#[derive(Deserialize)]
struct WireKey {
    kty: String,
    kid: Option<String>,
    alg: Option<String>,
    #[serde(rename = "use")]
    usage: Option<String>,
    crv: Option<String>,
    n: Option<String>,
    e: Option<String>,
    x: Option<String>,
    y: Option<String>,
}

impl WireKey {
    /// Returns the key, unless it is one that signs no tokens of ours.
    fn into_key(self) -> Option<(String, Option<String>, Arc<PublicKey>)> {
        if self.usage.is_some_and(|usage| usage != "sig") {
            return None;
        }
        let bytes = |text: Option<String>| BASE64URL_NOPAD.decode(text?.as_bytes()).ok();
        let key = match (self.kty.as_str(), self.crv.as_deref()) {
            ("RSA", _) => {
                let mut n = bytes(self.n)?;
                // Some issuers write the sign of the number as well.
                n.drain(..n.iter().take_while(|byte| **byte == 0).count());
                PublicKey::Rsa { n, e: bytes(self.e)? }
            }
            ("EC", Some("P-256")) => {
                let (x, y) = (bytes(self.x)?, bytes(self.y)?);
                if x.len() != 32 || y.len() != 32 {
                    return None;
                }
                PublicKey::P256([&[4], x.as_slice(), &y].concat())
            }
            ("OKP", Some("Ed25519")) => PublicKey::Ed25519(bytes(self.x)?),
            _ => return None,
        };
        Some((self.kid?, self.alg, Arc::new(key)))
    }
}
