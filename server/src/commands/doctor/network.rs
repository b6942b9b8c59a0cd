//! The issuer's keys, and the address that the gateway listens on.

use std::io::ErrorKind;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener};
use std::time::Duration;

use serde_json::Value;

use super::super::report::Report;
use super::super::serve::{gateway, tls_files};
use crate::config::{OauthSettings, Serve, address as parse_address};
use crate::http_client;

/// The time limit for one request.
const LIMIT: Duration = Duration::from_secs(5);
/// The maximum size of an answer that is read.
const ANSWER_LIMIT: usize = 1024 * 1024;

/// Asks the configured issuer for its keys.
pub(super) async fn issuer(report: &mut Report, oauth: &OauthSettings) {
    // An invalid setting has been reported.
    let (Some(url), Ok(Some(_))) = (&oauth.oauth_jwks_url, gateway::tokens(oauth)) else { return };
    let Ok((_, url)) = parse_address("PML_OAUTH_JWKS_URL", url) else { return };
    let remedy = "correct PML_OAUTH_JWKS_URL, or let this machine reach it; redirects and proxies are not used";
    let client = match http_client::for_named(LIMIT).build() {
        Ok(client) => client,
        Err(error) => return report.fail("issuer", error.to_string(), remedy),
    };
    match fetch(&client, url).await {
        Ok(answer) => match answer.json["keys"].as_array().map(Vec::len) {
            None | Some(0) => report.fail("issuer", "its answer has no `keys`", remedy),
            Some(number) => report.ok("issuer", format!("it has published {number} keys")),
        },
        Err(reason) => report.fail("issuer", format!("its keys cannot be read: {reason}"), remedy),
    }
}

/// Finds whether the address is free, or what answers on it.
pub(super) async fn address(report: &mut Report, serve: &Serve) {
    let listen = serve.listen;
    if listen.port() == 0 {
        report.ok("address", format!("a free port of {} will be chosen", listen.ip()));
        return;
    }
    match TcpListener::bind(listen) {
        Ok(_) => return report.ok("address", format!("{listen} is free; no gateway runs on it")),
        Err(error) if error.kind() == ErrorKind::AddrInUse => {}
        Err(error) => {
            let remedy =
                "set PML_LISTEN to an address of this machine; ports below 1024 need a right";
            return report.fail("address", format!("{listen} cannot be used: {error}"), remedy);
        }
    }
    // What is wrong with the files has been reported.
    let pair = tls_files(serve).ok().flatten().and_then(|files| files.load().ok());
    let scheme = if serve.tls.is_set() { "https" } else { "http" };
    let found = gateway_on(listen, scheme).await;
    if let (Some(pair), Some(Found { certificate: Some(served), .. })) = (&pair, &found)
        && served.as_slice() != pair.certificate()
    {
        report.warn(
            "certificate",
            format!("the gateway on {listen} serves another certificate than PML_TLS_CERT_FILE"),
            "look at its log; it reads changed files within seconds, and keeps the old certificate if they are wrong",
        );
    }
    match found.map(|found| found.version) {
        Some(version) if version == env!("CARGO_PKG_VERSION") => {
            report.ok("address", format!("a gateway of version {version} answers on {listen}"));
        }
        Some(version) => report.warn(
            "address",
            format!(
                "a gateway of version {version} answers on {listen}; this program is {}",
                env!("CARGO_PKG_VERSION")
            ),
            "restart the gateway, if it was upgraded",
        ),
        None => report.fail(
            "address",
            format!("{listen} is in use, and no healthy gateway answers on it"),
            "stop what uses the address, restart the gateway, or set PML_LISTEN to another address",
        ),
    }
}

/// A healthy gateway.
struct Found {
    version: String,
    /// Its certificate, with TLS.
    certificate: Option<Vec<u8>>,
}

/// Returns the gateway that answers on an address.
async fn gateway_on(listen: SocketAddr, scheme: &str) -> Option<Found> {
    let ip = match listen.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => IpAddr::V4(Ipv4Addr::LOCALHOST),
        IpAddr::V6(ip) if ip.is_unspecified() => IpAddr::V6(Ipv6Addr::LOCALHOST),
        ip => ip,
    };
    let base = format!("{scheme}://{}", SocketAddr::new(ip, listen.port()));
    let client = http_client::for_own_address(LIMIT).build().ok()?;
    let health = fetch(&client, format!("{base}/health").parse().ok()?).await.ok()?;
    let answer = fetch(&client, format!("{base}/version").parse().ok()?).await.ok()?;
    // Another program may answer here, with anything: only the form of a version is shown.
    let is_version = |text: &&str| {
        text.len() <= 40 && text.bytes().all(|b| b.is_ascii_alphanumeric() || b".-+".contains(&b))
    };
    let version = answer.json["version"].as_str().filter(is_version)?.to_owned();
    let certificate = answer.certificate;
    (health.json["status"] == "ok").then_some(Found { version, certificate })
}

/// An answer in JSON.
struct Fetched {
    json: Value,
    certificate: Option<Vec<u8>>,
}

/// Reads JSON.
async fn fetch(client: &reqwest::Client, url: reqwest::Url) -> Result<Fetched, String> {
    // Without the URL, whose query may have a secret.
    let shown = |error: reqwest::Error| format!("{:#}", anyhow::Error::new(error.without_url()));
    let mut answer = client.get(url).send().await.map_err(shown)?;
    if !answer.status().is_success() {
        return Err(format!("it answers {}", answer.status().as_u16()));
    }
    let tls = answer.extensions().get::<reqwest::tls::TlsInfo>();
    let certificate = tls.and_then(|tls| tls.peer_certificate()).map(<[u8]>::to_vec);
    let mut body = Vec::new();
    while let Some(part) = answer.chunk().await.map_err(shown)? {
        if body.len() + part.len() > ANSWER_LIMIT {
            return Err("its answer is too large".to_owned());
        }
        body.extend_from_slice(&part);
    }
    let json = serde_json::from_slice(&body).map_err(|_| "its answer is not JSON".to_owned())?;
    Ok(Fetched { json, certificate })
}
