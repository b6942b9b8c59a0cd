//! A real OAuth authorization server, `oidc-provider`, and a person who uses its pages with a browser.

use std::collections::BTreeMap;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::{Value, json};

use super::PATIENCE;
use super::cli::{Project, text};
use super::guard::{self, Guarded};
use super::http::send;
use super::mcp_servers::{node_22, npm};
use super::server::{Installation, Server};

/// The client id of `pml` at the issuer.
pub(crate) const CLIENT_ID: &str = "pml-cli";

/// The fixture with the issuer.
const FIXTURE: &str = "oauth";

/// The authorization server.
pub(crate) struct DeviceIssuer {
    program: Arc<Guarded>,
    /// Its identifier.
    pub(crate) url: String,
}

impl DeviceIssuer {
    /// Starts it. The settings are those of `issuer.mjs`, for example `access_s`.
    #[track_caller]
    pub(crate) fn start(settings: &Value) -> Self {
        let folder = guard::folder("o");
        // A module finds its packages beside itself.
        let script = folder.join("issuer.mjs");
        let source = concat!(env!("CARGO_MANIFEST_DIR"), "/fixtures/oauth/issuer.mjs");
        std::fs::copy(source, &script).expect("our own folder takes files");
        let packages = npm(FIXTURE).join("node_modules");
        std::os::unix::fs::symlink(packages, folder.join("node_modules")).expect("it takes links");
        let mut node = Command::new(node_22());
        node.arg(&script).arg(settings.to_string());
        let program = Guarded::start(&node, &folder.join("log"));
        let url = program.line(PATIENCE, |line| line.starts_with("http://"));
        Self { program, url: url.expect("the issuer starts") }
    }

    /// Starts a gateway that accepts its tokens.
    #[track_caller]
    pub(crate) fn gateway(&self, more: &[(&str, &str)]) -> Server {
        // The audience of the tokens has the gateway's port.
        let free = std::net::TcpListener::bind("127.0.0.1:0").expect("a port is free");
        let address = free.local_addr().expect("it is bound").to_string();
        drop(free);
        let (audience, keys) = (format!("http://{address}/mcp"), format!("{}/jwks", self.url));
        let mut settings = vec![
            ("PML_LISTEN", address.as_str()),
            ("PML_OAUTH_ISSUER", &self.url),
            ("PML_OAUTH_AUDIENCE", &audience),
            ("PML_OAUTH_JWKS_URL", &keys),
        ];
        settings.extend(more);
        Installation::new().start_with(&settings)
    }

    /// Stops it.
    pub(crate) fn stop(&self) {
        self.program.stop();
    }

    /// Returns how many requests with this method and path it has answered with this status.
    pub(crate) fn count(&self, request: &str, status: u16) -> usize {
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        // It prints a line after it has answered. So another request is sent, and its line is awaited.
        let marker = format!("/marker/{}", COUNT.fetch_add(1, Ordering::Relaxed));
        let answered = send("GET", &format!("{}{marker}", self.url), &[], None).status;
        let last = format!("GET {marker} {answered}");
        self.program.line(PATIENCE, |line| line == last).expect("the issuer prints each request");
        let line = format!("{request} {status}");
        self.program.printed().lines().filter(|printed| *printed == line).count()
    }

    /// Exchanges a refresh token, as `pml` does; returns the status and the answer.
    pub(crate) fn refresh(&self, refresh_token: &str) -> (u16, Value) {
        let form =
            format!("grant_type=refresh_token&client_id={CLIENT_ID}&refresh_token={refresh_token}");
        let reply = send("POST", &format!("{}/token", self.url), &[FORM], Some(form.into_bytes()));
        (reply.status, reply.json())
    }
}

const FORM: (&str, &str) = ("content-type", "application/x-www-form-urlencoded");

/// What the person does on the issuer's pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Decision {
    Agree,
    Decline,
}

/// A person with a browser that keeps cookies and follows redirects.
#[derive(Default)]
struct Person {
    cookies: BTreeMap<String, String>,
}

/// Opens the page of a sign-in, enters the code, and signs in as `ana`, or declines.
#[track_caller]
pub(crate) fn visit(page: &str, code: &str, decision: Decision) {
    let mut person = Person::default();
    let (_, entry) = person.go("GET", page, None);
    let xsrf = between(&entry, "name=\"xsrf\" value=\"", "\"");
    let answer = match decision {
        Decision::Agree => "confirm=yes",
        Decision::Decline => "abort=yes",
    };
    let form = format!("xsrf={xsrf}&user_code={code}&{answer}");
    let (mut url, mut shown) = person.go("POST", page, Some(form));
    if decision == Decision::Decline {
        return;
    }
    for prompt in ["login", "consent"] {
        assert!(shown.contains(&format!("value=\"{prompt}\"")), "{url}: {shown}");
        let form = format!("prompt={prompt}&login=ana&password=x");
        (url, shown) = person.go("POST", &url, Some(form));
    }
    assert!(shown.contains("Sign-in Success"), "{url}: {shown}");
}

impl Person {
    #[track_caller]
    fn go(&mut self, method: &str, url: &str, form: Option<String>) -> (String, String) {
        let (mut method, mut url, mut form) = (method, url.to_owned(), form);
        for _ in 0..8 {
            let cookies: Vec<String> =
                self.cookies.iter().map(|(name, value)| format!("{name}={value}")).collect();
            let cookies = cookies.join("; ");
            let reply = send(
                method,
                &url,
                &[("cookie", &cookies), FORM, ("accept", "text/html")],
                form.take().map(String::into_bytes),
            );
            for cookie in reply.headers.get_all("set-cookie") {
                let cookie = cookie.to_str().expect("a cookie is text");
                let (name, value) =
                    cookie.split(';').next().and_then(|pair| pair.split_once('=')).expect("a pair");
                if value.is_empty() {
                    self.cookies.remove(name);
                } else {
                    self.cookies.insert(name.to_owned(), value.to_owned());
                }
            }
            if !(300..400).contains(&reply.status) {
                return (url, text(&reply.body));
            }
            let place = reply.header("location").to_owned();
            url = if place.starts_with("http") {
                place
            } else {
                let origin: Vec<&str> = url.splitn(4, '/').take(3).collect();
                format!("{}{place}", origin.join("/"))
            };
            method = "GET";
        }
        panic!("too many redirects, to {url}");
    }
}

#[track_caller]
fn between<'a>(page: &'a str, start: &str, end: &str) -> &'a str {
    let rest = page.split_once(start).unwrap_or_else(|| panic!("no `{start}`: {page}")).1;
    rest.split_once(end).unwrap_or_else(|| panic!("no `{end}`: {page}")).0
}

/// Returns what `pml` has stored for its gateway.
#[track_caller]
pub(crate) fn stored(project: &Project, origin: &str) -> Value {
    let file = project.home().join(".config/pml/credentials");
    let text = std::fs::read_to_string(file).expect("something is stored");
    let all: Value = serde_json::from_str(&text).expect("it is JSON");
    all[origin].clone()
}

/// Changes what `pml` has stored for its gateway.
#[track_caller]
pub(crate) fn change_stored(project: &Project, origin: &str, changes: &Value) {
    let mut entry = stored(project, origin);
    for (name, value) in changes.as_object().expect("an object") {
        entry[name] = value.clone();
    }
    let file = project.home().join(".config/pml/credentials");
    // In place, so that its mode stays.
    std::fs::write(file, json!({ origin: entry }).to_string()).expect("it can be written");
}
