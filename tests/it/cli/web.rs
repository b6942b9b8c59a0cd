//! `web:get`: which addresses a program can open, and how much of an answer it gets.

use std::io::{BufRead as _, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use serde_json::{Value, json};

use crate::support::cli::{Project, text};
use crate::support::expect::{failure, question, success};
use crate::support::terminal::say_yes;

/// A web server on this machine, and the number of its requests.
pub(super) struct Site {
    pub(super) port: u16,
    requests: Arc<AtomicUsize>,
}

impl Site {
    pub(super) fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let requests = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&requests);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                count.fetch_add(1, Ordering::SeqCst);
                // The client may leave at any time.
                std::thread::spawn(move || answer(stream).ok());
            }
        });
        Self { port, requests }
    }

    pub(super) fn url(&self, path: &str) -> String {
        format!("http://127.0.0.1:{}{path}", self.port)
    }

    fn requests(&self) -> usize {
        self.requests.load(Ordering::SeqCst)
    }
}

/// Answers a request as its path says.
fn answer(mut stream: TcpStream) -> std::io::Result<()> {
    let mut reader = BufReader::new(stream.try_clone()?);
    let mut lines = Vec::new();
    loop {
        let mut line = String::new();
        reader.read_line(&mut line)?;
        if line.trim().is_empty() {
            break;
        }
        lines.push(line.trim().to_owned());
    }
    let path = lines[0].split(' ').nth(1).unwrap_or_default().to_owned();
    let whole = |head: &str, body: &[u8]| {
        let length = body.len();
        let mut out =
            format!("HTTP/1.1 {head}\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n")
                .into_bytes();
        out.extend_from_slice(body);
        out
    };
    let found = |location: &str| whole(&format!("302 Found\r\nlocation: {location}"), b"");
    if let Some(left) = path.strip_prefix("/to/") {
        return match left.parse::<u32>() {
            Ok(0) | Err(_) => stream.write_all(&whole("200 OK", b"the end")),
            Ok(left) => stream.write_all(&found(&format!("/to/{}", left - 1))),
        };
    }
    if let Some(location) = path.strip_prefix("/away?") {
        return stream.write_all(&found(location));
    }
    match &*path {
        "/text" => {
            stream.write_all(&whole("200 OK\r\ncontent-type: text/plain", "grüße".as_bytes()))
        }
        "/missing" => stream.write_all(&whole("404 Not Found", b"nothing here")),
        "/binary" => stream.write_all(&whole("200 OK\r\ncontent-type: image/png", b"\xff\xfe\x00")),
        "/gzip" => stream.write_all(&whole("200 OK\r\ncontent-encoding: gzip", b"\x1f\x8b")),
        "/echo" => stream.write_all(&whole("200 OK", lines.join("\n").as_bytes())),
        "/fits" => stream.write_all(&whole("200 OK", &[b'x'; 5_000])),
        "/large" => stream.write_all(&whole("200 OK", &[b'x'; 5_001])),
        // Announced, and never sent.
        "/announced" => stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 1073741824\r\n\r\nx"),
        "/short" => {
            stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\nconnection: close\r\n\r\nx")
        }
        "/endless" => {
            stream.write_all(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n")?;
            loop {
                stream.write_all(b"4\r\nxxxx\r\n")?;
            }
        }
        "/headers" => {
            stream.write_all(b"HTTP/1.1 200 OK\r\n")?;
            loop {
                stream.write_all(b"x-more: and more of it\r\n")?;
            }
        }
        "/slow" => {
            stream.write_all(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n")?;
            loop {
                stream.write_all(b"1\r\nx\r\n")?;
                std::thread::sleep(Duration::from_millis(20));
            }
        }
        _ => stream.write_all(b"no HTTP\r\n\r\n"),
    }
}

/// Creates a project whose rules allow everything and whose policy has this section, besides files.
fn project(web: &Value) -> Project {
    Project::offline().configure(&json!({
        "permissions": { "allow": ["*"] },
        "policy": { "filesystem": { "read": { "allow": ["**"] } }, "web": web },
    }))
}

fn get(arguments: &Value) -> String {
    format!("return await mcp.web.get({arguments})")
}

/// NP-07: an answer is a result with its status. One that is too large, too slow or no text is an error of the call.
#[test]
fn answers_are_limited() {
    let (site, proxy) = (Site::start(), Site::start());
    let private = format!("127.0.0.1:{}", site.port);
    let limits = json!({ "private": [private], "max_bytes": 5_000, "timeout_ms": 1_500 });
    let mut project = project(&limits);
    // No proxy is used: it would resolve names that only `pml` can check.
    for name in ["HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "ALL_PROXY", "all_proxy"] {
        project = project.set(name, &proxy.url(""));
    }
    let mut pml = project.stdio();
    let mut of = |path: &str| pml.execute(&get(&json!({ "url": site.url(path) })));
    let expected = |path: &str, status: u32, kind: Option<&str>, text: &str| json!({ "url": site.url(path), "status": status, "ok": status < 300, "content_type": kind, "text": text });
    assert_eq!(success(&of("/text#part")), &expected("/text", 200, Some("text/plain"), "grüße"));
    assert_eq!(success(&of("/missing")), &expected("/missing", 404, None, "nothing here"));
    assert_eq!(success(&of("/fits"))["text"].as_str().unwrap().len(), 5_000);
    let echoed = of("/echo");
    let sent = success(&echoed)["text"].as_str().unwrap().to_lowercase();
    assert!(
        sent.contains("user-agent: pml/") && sent.contains("accept-encoding: identity"),
        "{sent}"
    );
    assert!(
        !sent.contains("cookie") && !sent.contains("authorization") && !sent.contains("referer"),
        "{sent}"
    );
    for (path, code, reason) in [
        ("/large", "TOOL_FAILED", "more than 5000 bytes"),
        ("/announced", "TOOL_FAILED", "more than 5000 bytes"),
        ("/endless", "TOOL_FAILED", "more than 5000 bytes"),
        ("/headers", "TOOL_FAILED", "cannot get"),
        ("/short", "TOOL_FAILED", "cannot get"),
        ("/no-http", "TOOL_FAILED", "cannot get"),
        ("/gzip", "TOOL_FAILED", "is compressed (`gzip`)"),
        ("/binary", "TOOL_FAILED", "is not UTF-8 text (content type `image/png`)"),
        ("/slow", "TOOL_TIMEOUT", "did not answer in full within 1500 ms"),
    ] {
        let failed = of(path);
        let message = failure(&failed, code);
        assert!(message.contains(reason), "{path}: {message}");
    }
    let head = pml.execute(&get(&json!({ "url": site.url("/echo"), "method": "HEAD" })));
    assert_eq!(success(&head), &expected("/echo", 200, None, ""));
    let lower = pml.execute(&get(&json!({ "url": site.url("/text"), "max_bytes": 3 })));
    failure(&lower, "TOOL_FAILED");
    for wrong in [
        json!({ "url": "x" }),
        json!({ "url": "ftp://example.com/" }),
        json!({ "url": "file:///etc/passwd" }),
        json!({ "url": format!("http://user@127.0.0.1:{}/text", site.port) }),
        json!({ "url": site.url(&"x".repeat(9_000)) }),
        json!({ "url": site.url("/text"), "method": "POST" }),
        json!({ "url": site.url("/text"), "headers": {} }),
        json!({ "url": site.url("/text"), "max_bytes": 0 }),
        json!({ "url": site.url("/text"), "timeout_ms": 0 }),
        json!({}),
    ] {
        failure(&pml.execute(&get(&wrong)), "INVALID_ARGUMENTS");
    }
    assert_eq!((site.requests(), proxy.requests()), (15, 0));
}

/// NP-05: every redirect is checked as the first address is, and there are few of them.
#[test]
fn every_redirect_is_checked() {
    let (site, other) = (Site::start(), Site::start());
    let private = format!("127.0.0.1:{}", site.port);
    let project =
        project(&json!({ "allow": ["*", "*:1"], "private": [private], "max_redirects": 3 }));
    let mut pml = project.stdio();
    let mut of = |path: &str| pml.execute(&get(&json!({ "url": site.url(path) })));
    let end = of("/to/3");
    assert_eq!(
        (&success(&end)["text"], &success(&end)["url"]),
        (&json!("the end"), &json!(site.url("/to/0")))
    );
    let failed = of("/to/20");
    assert!(failure(&failed, "TOOL_FAILED").contains("3 redirects were followed already"));
    for (to, code) in [
        (other.url("/text"), "POLICY_DENIED"),
        (format!("http://localhost:{}/text", other.port), "POLICY_DENIED"),
        ("http://169.254.169.254/latest/meta-data/".to_owned(), "POLICY_DENIED"),
        ("http://[::ffff:10.0.0.1]/".to_owned(), "POLICY_DENIED"),
        ("//0x7f.1:1/".to_owned(), "POLICY_DENIED"),
        (format!("http://user:key@127.0.0.1:{}/text", site.port), "TOOL_FAILED"),
        ("file:///etc/passwd".to_owned(), "TOOL_FAILED"),
        ("gopher://127.0.0.1/".to_owned(), "TOOL_FAILED"),
        ("http://[".to_owned(), "TOOL_FAILED"),
    ] {
        let failed = of(&format!("/away?{to}"));
        assert_eq!(failed["error_code"], code, "{to}: {failed:#}");
    }
    assert_eq!((site.requests(), other.requests()), (4 + 4 + 9, 0));
}

/// NP-03: no spelling of a private address reaches this machine, whatever hosts the policy allows.
#[test]
fn private_addresses_are_not_reached() {
    let canary = Site::start();
    let port = canary.port;
    let project = project(&json!({ "allow": ["*", format!("*:{port}")] }));
    let mut pml = project.stdio();
    for host in [
        "127.0.0.1",
        "127.1",
        "2130706433",
        "0x7f000001",
        "0177.0.0.1",
        "0",
        "0.0.0.0",
        "[::]",
        "[::1]",
        "[::ffff:127.0.0.1]",
        "[::127.0.0.1]",
        "[64:ff9b::7f00:1]",
        "[2002:7f00:1::]",
        "[fe80::1]",
        "[fc00::1]",
        "10.0.0.1",
        "192.168.0.1",
        "172.16.0.1",
        "100.64.0.1",
        "100.100.100.200",
        "169.254.169.254",
        "192.0.0.192",
        "224.0.0.1",
        "255.255.255.255",
        "localhost",
        "LOCALHOST.",
        "a.localhost",
        "１２７.0.0.1",
    ] {
        let refused = pml.execute(&get(&json!({ "url": format!("http://{host}:{port}/text") })));
        // The resolver may not know these names.
        let is_unknown =
            ["LOCALHOST.", "a.localhost"].contains(&host) && refused["error_code"] == "TOOL_FAILED";
        if !is_unknown {
            let message = failure(&refused, "POLICY_DENIED");
            assert!(message.contains("private address"), "{host}: {message}");
        }
    }
    assert_eq!(canary.requests(), 0);
}

/// AP-15: without a policy, a person is asked, is shown where the call goes, and cannot allow it for ever.
#[test]
fn without_a_policy_a_person_is_asked() {
    let site = Site::start();
    let project = Project::offline().allow(&["web:get"]);
    let mut pml = project.stdio();
    // Nobody is asked about what cannot run.
    let refused = pml.execute(&get(&json!({ "url": site.url("/text") })));
    assert!(failure(&refused, "POLICY_DENIED").contains("list the host in `policy.web.private`"));
    // No name has a part of more than 63 letters.
    let host = format!("{}.invalid", "a".repeat(64));
    let code = get(&json!({ "url": format!("HTTPS://{}:8443/?q=secret", host.to_uppercase()) }));
    let asked = pml.execute(&code);
    let approval = question(&asked);
    assert!(
        approval["description"]
            .as_str()
            .unwrap()
            .starts_with(&format!("Send to https://{host}:8443\n")),
        "{approval:#}"
    );
    assert_eq!(approval["options"], json!(["abort"]));
    assert_eq!(approval["context"]["can_be_allowed"], false);
    assert_eq!(approval["context"]["dangerous"], true);
    assert!(approval["context"]["needs_person"].is_string(), "{approval:#}");
    let asked = say_yes(&project, &mut pml, approval);
    let message = failure(&asked, "TOOL_FAILED");
    let expected = format!("cannot get `https://{host}:8443/?q=secret`");
    assert!(message.contains(&expected), "{message}");
}

/// The plan says who gets what the call sends.
#[test]
fn the_plan_shows_what_is_sent() {
    let project = project(&json!({ "allow": ["example.com"] }));
    project.write(
        "p.ts",
        "const text = await mcp.filesystem.read_text_file({ path: 'a' });
         return (await mcp.web.get({ url: 'https://example.com/?q=' + text })).status;",
    );
    let plan = project.run(&["plan", "p.ts", "--offline"]);
    let shown = text(&plan.stdout);
    assert!(shown.contains("t1 filesystem:read_text_file → t2 web:get"), "{shown}");
    assert!(shown.contains("t2 web:get sends its arguments to the host of its `url`"), "{shown}");
}
