//! TLS on the gateway's address: the handshake, and certificates that are replaced while it serves.
//!
//! A handshake belongs to the connection from its accept on: it counts towards the limits, and has the same 10 s together
//! with the head of the first request. The two files are read again every few seconds. Reading them, instead of watching
//! them, also notices links that are swapped (Kubernetes, certbot) and files on network disks.

mod pair;
mod validity;

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use arc_swap::ArcSwap;
use axum::Router;
use axum::http::header;
use protocol::ErrorCode;
use rustls::ServerConfig;
use rustls::sign::SingleCertAndKey;
use tokio::net::TcpStream;
use tokio::sync::Notify;
use tokio::time::MissedTickBehavior;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

pub(crate) use pair::{Files, Pair, PairError, date, now};

use super::CLOSE;
use super::state::ConnectionState;
use super::stream::ObservedStream;
use crate::error::ApiError;

/// The interval at which the files are read.
const POLL: Duration = Duration::from_secs(2);
/// The seconds before the end of a certificate in which it is warned of: renewals usually happen 30 days before.
pub(crate) const EXPIRES_SOON: u64 = 14 * 24 * 60 * 60;
/// The seconds between two such warnings.
const REMINDER: u64 = 24 * 60 * 60;
/// The protocols within TLS, the preferred one first.
const PROTOCOLS: [&[u8]; 2] = [b"h2", b"http/1.1"];

/// The certificate in use, and the files that replace it.
pub(crate) struct Tls {
    files: Files,
    current: ArcSwap<Current>,
    /// Whether the files contain the certificate in use.
    is_current: AtomicBool,
}

struct Current {
    config: Arc<ServerConfig>,
    not_after: u64,
    fingerprint: blake3::Hash,
}

impl Tls {
    /// Reads the files.
    ///
    /// # Errors
    /// Returns an error when no client could connect with them now.
    pub(crate) fn open(files: Files) -> anyhow::Result<Self> {
        if files.key_is_open_to_others() {
            tracing::warn!(
                "Others can read or change the private key in `{}`; run `chmod 600` on it",
                files.key().display()
            );
        }
        let contents = files.read();
        let fingerprint = contents.fingerprint();
        let current = Current::new(contents.parse()?, fingerprint)?;
        Ok(Self {
            files,
            current: ArcSwap::from_pointee(current),
            is_current: AtomicBool::new(true),
        })
    }

    /// Returns the files.
    pub(crate) fn files(&self) -> &Files {
        &self.files
    }

    /// Returns the last second of the certificate in use, since 1970.
    pub(crate) fn not_after(&self) -> u64 {
        self.current.load().not_after
    }

    /// Returns whether the files contain the certificate in use; `false` if they were changed and cannot be used.
    pub(crate) fn is_current(&self) -> bool {
        self.is_current.load(Ordering::Relaxed)
    }

    /// Replaces the certificate when the files change, and at once when `asked` is notified; never returns. Connections
    /// keep the one that they began with.
    pub(crate) async fn follow(&self, asked: &Notify) {
        let mut ticks = tokio::time::interval(POLL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut watch = Watch::new(self.current.load().fingerprint);
        let mut next_warning = 0;
        loop {
            let is_asked = tokio::select! {
                () = asked.notified() => true,
                _ = ticks.tick() => false,
            };
            let files = self.files.clone();
            // A file on a network disk can block its reader.
            let Ok(contents) = tokio::task::spawn_blocking(move || files.read()).await else {
                continue;
            };
            let fingerprint = contents.fingerprint();
            if watch.is_due(fingerprint, is_asked) {
                let replaced = contents.parse().map_err(anyhow::Error::new);
                match replaced.and_then(|pair| Current::new(pair, fingerprint)) {
                    Ok(current) => {
                        let until = date(current.not_after);
                        self.current.store(Arc::new(current));
                        watch.on_used(fingerprint);
                        next_warning = 0;
                        tracing::info!(
                            tls.valid_until = until,
                            "New connections get the new certificate"
                        );
                    }
                    // Judged again each time, because a certificate may become valid, but logged once.
                    Err(error) if watch.on_refused(fingerprint) || is_asked => {
                        tracing::error!(
                            error = %error,
                            "Could not use the changed certificate; new connections get the previous one"
                        );
                    }
                    Err(_) => {}
                }
            } else if is_asked {
                tracing::info!("The files of the certificate are unchanged");
            }
            self.is_current.store(watch.refused.is_none(), Ordering::Relaxed);
            if now() >= next_warning {
                next_warning = now() + REMINDER;
                self.warn_of_end();
            }
        }
    }

    fn warn_of_end(&self) {
        let (not_after, now) = (self.not_after(), now());
        let until = date(not_after);
        if now > not_after {
            tracing::error!("The certificate expired on {until}: clients refuse it; renew it");
        } else if not_after - now < EXPIRES_SOON {
            tracing::warn!("The certificate expires on {until}; renew it");
        }
    }

    /// Begins a new connection: with a handshake, or, if it begins like HTTP, without.
    pub(super) async fn begin(
        &self,
        stream: TcpStream,
        state: &Arc<ConnectionState>,
    ) -> io::Result<Begun> {
        let mut first = [0];
        // A record of TLS begins with a byte below 32, and a request with a method.
        let is_plain = stream.peek(&mut first).await? == 1 && first[0].is_ascii_alphabetic();
        // Beneath TLS, because there it shows whether the client reads.
        let stream = ObservedStream::new(stream, Arc::clone(state));
        if is_plain {
            return Ok(Begun::Plain(stream));
        }
        let config = Arc::clone(&self.current.load().config);
        Ok(Begun::Encrypted(Box::new(TlsAcceptor::from(config).accept(stream).await?)))
    }
}

/// A connection whose handshake is complete, or that has none.
pub(super) enum Begun {
    /// TLS.
    Encrypted(Box<TlsStream<ObservedStream<TcpStream>>>),
    /// Plain HTTP.
    Plain(ObservedStream<TcpStream>),
}

/// Returns the only route for plain HTTP: every request is refused, unread.
pub(super) fn plain_router() -> Router {
    Router::new().fallback(async || {
        ApiError::new(ErrorCode::InvalidRequest, "this address serves HTTPS, not plain HTTP")
            .with_member("hint", "Write `https://` instead of `http://`.")
            .with_header(header::CONNECTION, CLOSE)
    })
}

impl Current {
    fn new(pair: Pair, fingerprint: blake3::Hash) -> anyhow::Result<Self> {
        let not_after = pair.validity.not_after;
        // TLS 1.2 and 1.3. Each certificate has its own sessions: none of an earlier one is resumed.
        let mut config = ServerConfig::builder_with_provider(Arc::new(pair::provider()))
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_cert_resolver(Arc::new(SingleCertAndKey::from(pair.certified)));
        config.alpn_protocols = PROTOCOLS.map(<[u8]>::to_vec).into();
        Ok(Self { config: Arc::new(config), not_after, fingerprint })
    }
}

/// Which contents of the files are to be judged.
struct Watch {
    in_use: blake3::Hash,
    /// The contents at the last look.
    seen: blake3::Hash,
    /// The contents that could not be used.
    refused: Option<blake3::Hash>,
}

impl Watch {
    fn new(in_use: blake3::Hash) -> Self {
        Self { in_use, seen: in_use, refused: None }
    }

    /// Notes the contents, and returns whether they are to be judged: new ones, when they have stayed the same for two
    /// looks. Between the writes of two files, they do not belong together.
    fn is_due(&mut self, found: blake3::Hash, is_asked: bool) -> bool {
        let is_settled = std::mem::replace(&mut self.seen, found) == found;
        if found == self.in_use {
            // A change was undone.
            self.refused = None;
            return false;
        }
        is_settled || is_asked
    }

    fn on_used(&mut self, found: blake3::Hash) {
        (self.in_use, self.refused) = (found, None);
    }

    /// Notes contents that cannot be used; returns whether they are others than before.
    fn on_refused(&mut self, found: blake3::Hash) -> bool {
        self.refused.replace(found) != Some(found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contents_are_judged_when_they_have_settled_and_reported_once() {
        let [first, half, second] = [b"1", b"x", b"2"].map(|text| blake3::hash(text));
        let mut watch = Watch::new(first);
        assert!(!watch.is_due(first, false) && !watch.is_due(first, true));
        assert!(!watch.is_due(half, false), "one of two files was written");
        assert!(!watch.is_due(second, false) && watch.is_due(second, false));
        watch.on_used(second);
        assert!(!watch.is_due(second, false));
        assert!(watch.is_due(half, true), "a signal is obeyed at once");
        assert!(watch.on_refused(half));
        assert!(watch.is_due(half, false), "it may become valid");
        assert!(!watch.on_refused(half) && watch.refused.is_some());
        assert!(!watch.is_due(second, false) && watch.refused.is_none(), "the change was undone");
    }
}
