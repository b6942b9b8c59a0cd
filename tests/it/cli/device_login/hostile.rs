//! Hostile gateways and issuers.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::credentials;
use crate::cli::page::{link, with_browser};
use crate::support::cli::{Project, text};
use crate::support::device_issuer::CLIENT_ID;
use crate::support::gateway_stub::{Answer, GatewayStub};
use crate::support::terminal::on_terminal;

/// Changes an answer.
type Change = Box<dyn Fn(&mut Value) + Send + Sync>;

/// Starts a gateway that is its own issuer. `edit` changes an answer, given its path; the tokens are refused.
fn hostile(edit: impl Fn(&str, &mut Value) + Send + Sync + 'static) -> GatewayStub {
    GatewayStub::start_with_head(move |head, _| {
        let path = head.split(' ').nth(1).unwrap_or_default().to_owned();
        let host = head.lines().find_map(|line| line.strip_prefix("host: ")).unwrap_or_default();
        let url = format!("http://{host}");
        let mut answer = match path.as_str() {
            "/.well-known/oauth-protected-resource" => json!({
                "resource": format!("{url}/mcp"), "authorization_servers": [url],
                "scopes_supported": ["pml:read", "a\nb"], "pml_cli_client_id": CLIENT_ID,
            }),
            "/.well-known/oauth-authorization-server" => json!({
                "issuer": url, "token_endpoint": format!("{url}/token"),
                "device_authorization_endpoint": format!("{url}/device"),
            }),
            "/device" => json!({
                "device_code": "canary-device-code", "user_code": "AB\u{1b}[2JCD\u{202e}",
                "verification_uri": format!("{url}/page"),
                "verification_uri_complete": format!("{url}/page?user_code=ABCD"),
                "expires_in": 60, "interval": 1,
            }),
            "/token" => json!({ "error": "access_denied", "error_description": "no\u{1b}[31m" }),
            _ => return Answer::Raw(404, "text/plain", Vec::new()),
        };
        edit(&path, &mut answer);
        match &answer["redirect"] {
            Value::String(place) => Answer::Redirect(place.clone()),
            _ if answer.get("error").is_some() => {
                Answer::Raw(400, "application/json", answer.to_string().into_bytes())
            }
            _ => Answer::Json(answer),
        }
    })
}

/// CL-11: the page of a sign-in is opened as one argument, and only if it is a plain web address.
#[test]
fn a_hostile_page_is_never_opened() {
    // The control: the page is opened, the code is shown without control characters.
    let stub = hostile(|_, _| {});
    let project = with_browser().set("PML_CLOUD_URL", &stub.url);
    let (shown, code) = on_terminal(&project, &["login", "--browser"], &[]);
    assert_eq!(code, 3, "{shown}");
    assert_eq!(link(&project), format!("{}/page?user_code=ABCD", stub.url));
    assert!(
        shown.contains("AB\\u{1b}[2JCD\\u{202e}") && shown.contains("access_denied"),
        "{shown}"
    );
    let is_hidden = |c: char| (c.is_control() && c != '\n') || c == '\u{202e}';
    assert!(!shown.contains(is_hidden) && !shown.contains("canary"), "{shown:?}");
    // Without a terminal, or with `--no-open`, it is only shown.
    let (shown, _) = on_terminal(&project, &["login", "--browser", "--no-open"], &[]);
    assert!(shown.contains("/page\n"), "{shown}");
    assert_eq!(project.run(&["login", "--browser"]).status.code(), Some(3));
    assert!(!project.home().join("link").exists());

    for address in [
        "javascript:alert(1)",
        "file:///etc/passwd",
        "data:text/html,x",
        "--help",
        "-https://id.test",
        "$(touch pwned)",
        "http://127.0.0.1/$(touch${IFS}pwned)",
        "http://127.0.0.1/`touch pwned`",
        "http://127.0.0.1/;touch",
        "http://127.0.0.1/a b",
        "http://127.0.0.1/\n",
        "http://127.0.0.1/\u{1b}[2J",
        "http://127.0.0.1/\u{202e}",
        "http://id.test/",
        "https://ana:canary@id.test/",
        "http:127.0.0.1",
        "",
    ] {
        for member in ["verification_uri", "verification_uri_complete"] {
            let stub = hostile(move |path, answer| {
                if path == "/device" {
                    answer[member] = address.into();
                }
            });
            let project = with_browser().set("PML_CLOUD_URL", &stub.url);
            let (shown, code) = on_terminal(&project, &["login", "--browser"], &[]);
            assert_eq!(code, 4, "{address:?}: {shown}");
            assert!(shown.contains(member) && shown.contains("is refused"), "{shown}");
            assert!(!shown.contains(is_hidden), "{shown:?}");
            assert!(!project.home().join("link").exists(), "{address:?} was opened");
            assert!(!project.path("pwned").exists(), "{address:?} was run");
            let asked = stub.received().iter().any(|request| request.contains("/token"));
            assert!(!asked, "{address:?}: the sign-in went on");
        }
    }
}

/// A gateway or an issuer cannot pass for another one, or direct `pml` elsewhere.
#[test]
fn hostile_metadata_is_refused() {
    let trap = GatewayStub::start(|_| Answer::Json(json!({})));
    let away = trap.url.clone();
    let cases: [(&str, Change, &str); 9] = [
        (
            "/.well-known/oauth-protected-resource",
            Box::new(|answer| answer["resource"] = "https://other.example/mcp".into()),
            "which is not",
        ),
        (
            "/.well-known/oauth-protected-resource",
            Box::new(|answer| answer["authorization_servers"] = json!([])),
            "names no issuer",
        ),
        (
            "/.well-known/oauth-protected-resource",
            Box::new(|answer| answer["authorization_servers"] = json!(["http://id.test"])),
            "is refused",
        ),
        (
            "/.well-known/oauth-authorization-server",
            Box::new(|answer| answer["issuer"] = "https://other.example".into()),
            "is the metadata of the issuer `https://other.example`",
        ),
        (
            "/.well-known/oauth-authorization-server",
            Box::new(|answer| answer["token_endpoint"] = "http://id.test/token".into()),
            "`token_endpoint` `http://id.test/token` is refused",
        ),
        (
            "/.well-known/oauth-authorization-server",
            Box::new(|answer| answer["device_authorization_endpoint"] = "file:///x".into()),
            "is refused",
        ),
        (
            "/device",
            Box::new(move |answer| answer["redirect"] = format!("{away}/canary").into()),
            "HTTP status 307",
        ),
        (
            "/device",
            Box::new(|answer| answer["padding"] = "x".repeat(1024 * 1024).into()),
            "more than 256 KiB",
        ),
        ("/device", Box::new(|answer| answer["user_code"] = Value::Null), "no `user_code`"),
    ];
    for (wanted, change, reason) in cases {
        let stub = hostile(move |path, answer| {
            if path == wanted {
                change(answer);
            }
        });
        let output = Project::at(&stub.url).run(&["login", "--browser"]);
        let stderr = text(&output.stderr);
        assert_eq!(output.status.code(), Some(4), "{reason}: {stderr}");
        assert!(stderr.contains(reason), "{reason}: {stderr}");
    }
    assert_eq!(trap.requests(), 0, "a redirect was followed");
}

/// The issuer sets the pace (RFC 8628, 3.5), and sends tokens that are not stored.
#[test]
fn the_issuer_slows_down_and_tokens_are_checked() {
    let asked = std::sync::atomic::AtomicUsize::new(0);
    let stub = hostile(move |path, answer| {
        if path == "/token" {
            *answer = match asked.fetch_add(1, std::sync::atomic::Ordering::SeqCst) {
                0 => json!({ "error": "slow_down" }),
                _ => json!({ "access_token": "canary token", "token_type": "Bearer" }),
            };
        }
    });
    let project = Project::at(&stub.url);
    let started = Instant::now();
    let output = project.run(&["login", "--browser"]);
    let stderr = text(&output.stderr);
    // One second, and six after `slow_down`.
    assert!(started.elapsed() >= Duration::from_secs(7), "{:?}", started.elapsed());
    assert_eq!(output.status.code(), Some(4), "{stderr}");
    assert!(stderr.contains("an invalid `access_token`") && !stderr.contains("canary"), "{stderr}");
    assert!(!credentials(&project).exists());
    let requests = stub.received();
    let device = requests.iter().find(|request| request.starts_with("POST /device")).unwrap();
    // A scope that contains a line break is left out.
    assert!(device.ends_with(&format!(
        "client_id={CLIENT_ID}&scope=pml%3Aread&resource={}%2Fmcp",
        stub.url.replace(':', "%3A").replace('/', "%2F")
    )));
}
