//! HTTPS without a proxy: who can connect, which certificates are refused, and how they are replaced.

use std::fs;
use std::io::{ErrorKind, Read as _, Write as _};
use std::net::TcpStream;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::Path;
use std::process::{Command, Output};
use std::time::Instant;

use serde_json::{Value, json};

use super::inspection::{findings, level};
use super::metrics::{SETTINGS, own_listener, scrape};
use crate::mcp::sdk_clients::{self, Client};
use crate::support::cli::{Project, text};
use crate::support::expect::success;
use crate::support::http::{HttpMcp, get};
use crate::support::mcp_client::Era;
use crate::support::server::{Installation, Server};
use crate::support::tls::{Authority, Issued, NAMES};
use crate::support::{PATIENCE, poll, scaled};

/// The kind of key of most certificates.
const EC: &str = "ec -pkeyopt ec_paramgen_curve:P-256";
const DATES: [&str; 2] = ["-1 day", "+90 days"];
/// The public name of the gateway in these tests.
const HOST: &str = "gw.acme.example";

fn address(server: &Server) -> &str {
    server.url().strip_prefix("https://").unwrap()
}

fn curl(authority: &Authority, arguments: &[&str]) -> Output {
    let mut command = Command::new("curl");
    command.args(["-sS", "--noproxy", "*", "--max-time", "60", "--cacert"]);
    command.arg(authority.certificate()).args(arguments).output().expect("`curl` runs")
}

/// TLS 1.2 and 1.3, HTTP/1.1 and HTTP/2, `curl`, `pml` and the official SDKs; and what they refuse.
#[test]
fn clients_connect_over_https_and_check_the_certificate() {
    let authority = Authority::new();
    let issued = authority.issue_with("gw", &format!("{NAMES},DNS:{HOST}"), EC, DATES);
    let public = format!("https://{HOST}");
    let mut settings = issued.settings().to_vec();
    settings.extend([("PML_PUBLIC_URL", public.as_str()), ("PML_METRICS_LISTEN", "127.0.0.1:0")]);
    let installation = Installation::new();
    let server = installation.start_with(&settings);
    let address = address(&server);
    let screen = server.start_screen();
    assert!(screen.contains(&format!("export PML_CLOUD_URL={public}\n")), "{screen}");
    assert!(own_listener(&server).starts_with("http://"), "{screen}");

    let health = format!("{}/health", server.url());
    for (options, version) in [
        (&["--tls-max", "1.2"][..], "2"),
        (&["--tlsv1.3"], "2"),
        (&["--tlsv1.3", "--http1.1"], "1.1"),
        (&["--no-alpn"], "1.1"),
    ] {
        let answer = ["-o", "/dev/null", "-w", "%{http_code} %{http_version}", &health];
        let output = curl(&authority, &[options, &answer].concat());
        assert_eq!(text(&output.stdout), format!("200 {version}"), "{options:?}: {output:?}");
    }
    let s_client = |version: &str| {
        let mut command = Command::new("openssl");
        command.args(["s_client", "-connect", address, version, "-cipher", "DEFAULT@SECLEVEL=0"]);
        let output = command.stdin(std::process::Stdio::null()).output().unwrap();
        (output.status.success(), text(&output.stderr))
    };
    assert!(s_client("-tls1_2").0, "control");
    for old in ["-tls1", "-tls1_1"] {
        let (is_accepted, said) = s_client(old);
        // The gateway's alert, not a refusal by the client.
        assert!(!is_accepted && said.contains("SSL alert number"), "{old}: {said}");
    }

    // The client decides by the name and the authority. 60 is its code for a certificate that it does not accept.
    let (_, port) = address.rsplit_once(':').unwrap();
    let to =
        |host: &str| (format!("{host}:{port}:127.0.0.1"), format!("https://{host}:{port}/health"));
    let (resolve, url) = to(HOST);
    assert_eq!(curl(&authority, &["--resolve", &resolve, &url]).status.code(), Some(0));
    let (resolve, url) = to("other.example");
    assert_eq!(curl(&authority, &["--resolve", &resolve, &url]).status.code(), Some(60));
    assert_eq!(curl(&Authority::new(), &[&health]).status.code(), Some(60));

    // The names of the gateway are those of its settings, not those of the certificate.
    let tenant = server.tenant();
    let bearer = format!("Bearer {}", tenant.key);
    let mcp = format!("{}/mcp", server.url());
    let status_for = |host: &str| {
        let list = Era::Handshake.request(1, "tools/list", json!({})).to_string();
        let headers = [
            format!("authorization: {bearer}"),
            "content-type: application/json".to_owned(),
            "accept: application/json, text/event-stream".to_owned(),
            format!("mcp-protocol-version: {}", Era::Handshake.version()),
        ];
        let headers: Vec<&str> = headers.iter().flat_map(|header| ["-H", header]).collect();
        let resolve = format!("{host}:{port}:127.0.0.1");
        let url = format!("https://{host}:{port}/mcp");
        let request = ["--resolve", &resolve, "-k", "-d", &list, "-o", "/dev/null", &url];
        let shown = ["-w", "%{http_code}"];
        text(&curl(&authority, &[&headers[..], &request, &shown].concat()).stdout)
    };
    assert_eq!([HOST, "other.example"].map(status_for), ["200", "403"]);
    // It would bind every other port of this name, too.
    assert_eq!(get(&health, &[]).header("strict-transport-security"), "");
    let client = HttpMcp::new(&tenant, Era::Stateless);
    let sum = "return await mcp.math.eval({ expression: '6 * 7' })";
    assert_eq!(success(&client.execute(sum)), 42);

    // `pml` and the SDKs trust the authority by the usual variables, and refuse without them.
    let ca = authority.certificate();
    let ca = ca.to_str().unwrap();
    let project = Project::of(&tenant).set("SSL_CERT_FILE", ca).set("NODE_EXTRA_CA_CERTS", ca);
    let (envelope, _) = project.exec(sum);
    assert_eq!(success(&envelope), 42);
    let strange = Project::of(&tenant).set("SSL_CERT_FILE", "/etc/ssl/certs/ca-certificates.crt");
    let refused = strange.run_with(&["exec", "-"], sum.as_bytes());
    let said = text(&refused.stderr);
    assert!(!refused.status.success() && said.contains("certificate"), "{said}");
    let call = json!({ "name": "math__eval", "arguments": { "expression": "6 * 7" } });
    let target = json!({ "url": mcp, "headers": { "Authorization": bearer } });
    let input = json!({ "target": target, "version": "2025-11-25", "calls": [call] });
    for client in [Client::PythonSdk, Client::TypeScriptV1] {
        let lines = sdk_clients::run(&project, client, &input);
        let last = lines.last().unwrap();
        assert!(last["result"]["content"].to_string().contains("42"), "{client:?}: {last}");
    }

    // `doctor` looks at what is served.
    let doctor = |issued: &Issued| {
        let mut command = installation.command(&["doctor", "--json"]);
        findings(command.env("PML_LISTEN", address).envs(issued.settings()))
    };
    let (code, found) = doctor(&issued);
    assert_eq!((code, level(&found, "address", "answers on")), (Some(0), "ok"));
    assert!(!found.iter().any(|it| it["subject"] == "certificate"), "{found:#?}");
    let (code, found) = doctor(&authority.issue("other"));
    assert_eq!((code, level(&found, "certificate", "another certificate")), (Some(0), "warning"));
    assert_eq!(server.stop(), Some(0));
}

/// Points `tls.crt` and `tls.key` to another pair at once, as Kubernetes updates a mounted secret.
fn swap(folder: &Path, certificate: &Path, key: &Path) {
    let count = fs::read_dir(folder).unwrap().count();
    let next = folder.join(format!("..{count}"));
    fs::create_dir(&next).unwrap();
    fs::copy(certificate, next.join("tls.crt")).unwrap();
    fs::copy(key, next.join("tls.key")).unwrap();
    let link = folder.join("..next");
    symlink(next.file_name().unwrap(), &link).unwrap();
    fs::rename(&link, folder.join("..data")).unwrap();
}

/// New connections get a new certificate, and old ones go on. A pair that cannot be used changes nothing but the log and
/// the metrics. `SIGHUP` reloads instead of stopping.
#[test]
fn a_renewed_certificate_is_used_without_a_restart() {
    let authority = Authority::new();
    let [first, second, third] = ["first", "second", "third"].map(|name| authority.issue(name));
    let folder = authority.folder().join("mounted");
    fs::create_dir(&folder).unwrap();
    swap(&folder, &first.certificate, &first.key);
    let mounted = Issued { certificate: folder.join("tls.crt"), key: folder.join("tls.key") };
    for name in ["tls.crt", "tls.key"] {
        symlink(format!("..data/{name}"), folder.join(name)).unwrap();
    }
    let settings = [&SETTINGS[..], &mounted.settings()].concat();
    let server = Installation::new().start_with(&settings);
    let own = own_listener(&server);
    let log = || server.installation().log();
    let served = || authority.connect(server.url()).certificate();
    let is_current = || scrape(&own).value("pml_tls_certificate_current", &[]);
    assert_eq!((served(), is_current()), (first.der(), 1.0));
    let in_90_days = scrape(&own).value("pml_tls_certificate_expiry_timestamp_seconds", &[]);
    let now = std::time::UNIX_EPOCH.elapsed().unwrap().as_secs_f64();
    assert!(((in_90_days - now) / 86_400.0 - 90.0).abs() < 0.1, "{in_90_days}");

    // A program runs on a connection of the first certificate.
    let tenant = server.tenant();
    let mut running = authority.connect(server.url());
    let code = "await new Promise((done) => setTimeout(done, 25_000))";
    let arguments = json!({ "code": code, "options": { "timeout_ms": 15_000 } });
    let call = json!({ "name": "pml_execute", "arguments": arguments });
    let call = Era::Handshake.request(1, "tools/call", call).to_string();
    running.send(&format!(
        "POST /mcp HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {}\r\ncontent-type: application/json\r\n\
         accept: application/json, text/event-stream\r\nmcp-protocol-version: {}\r\ncontent-length: {}\r\n\r\n{call}",
        tenant.key,
        Era::Handshake.version(),
        call.len(),
    ));
    poll("the program", PATIENCE, || {
        (scrape(&own).value("pml_programs_running", &[]) == 1.0).then_some(())
    });
    let becomes = |wanted: &Issued| {
        let wanted = wanted.der();
        poll("the new certificate", PATIENCE, || (served() == wanted).then_some(()));
    };
    swap(&folder, &second.certificate, &second.key);
    becomes(&second);
    assert_eq!(scrape(&own).value("pml_programs_running", &[]), 1.0, "it runs meanwhile");
    let answer = running.read_until("TIME_LIMIT");
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    running.send("GET /health HTTP/1.1\r\nhost: localhost\r\n\r\n");
    running.read_until("\"ok\"");

    // The key of another certificate, then a file that is missing: the second certificate stays.
    swap(&folder, &third.certificate, &first.key);
    poll("the metric", PATIENCE, || (is_current() == 0.0).then_some(()));
    assert_eq!(served(), second.der());
    let complaints = || log().matches("Could not use the changed certificate").count();
    assert_eq!(complaints(), 1, "{}", log());
    assert!(log().contains("PML_TLS_KEY_FILE") && log().contains("does not belong"), "{}", log());
    fs::remove_file(folder.join("tls.crt")).unwrap();
    poll("the next complaint", PATIENCE, || (complaints() == 2).then_some(()));
    assert_eq!((served(), is_current()), (second.der(), 0.0));
    symlink("..data/tls.crt", folder.join("tls.crt")).unwrap();
    // Undone: nothing is wrong any more.
    swap(&folder, &second.certificate, &second.key);
    poll("the metric", PATIENCE, || (is_current() == 1.0).then_some(()));

    swap(&folder, &third.certificate, &third.key);
    server.pid().signal("HUP");
    becomes(&third);
    server.pid().signal("HUP");
    poll("the answer to the signal", PATIENCE, || {
        log().contains("The files of the certificate are unchanged").then_some(())
    });
    assert_eq!(get(&format!("{}/health", server.url()), &[]).status, 200);
    assert_eq!(server.stop(), Some(0));
}

/// Every form of key is accepted, and `check` warns of what is risky.
#[test]
fn pairs_that_can_be_used_are_accepted() {
    let authority = Authority::new();
    let installation = Installation::new();
    let check = |issued: &Issued, settings: &[(&str, &str)]| {
        let mut command = installation.command(&["check", "--json"]);
        command.envs(issued.settings()).envs(settings.iter().copied());
        let (code, found) = findings(&mut command);
        assert_eq!(code, Some(0), "{found:#?}");
        found
    };
    let warnings = |found: &[Value]| found.iter().filter(|it| it["level"] == "warning").count();
    let mut last = None;
    for (file, kind) in [
        ("ec", EC),
        ("p384", "ec -pkeyopt ec_paramgen_curve:P-384"),
        ("rsa", "rsa:2048"),
        ("ed25519", "ed25519"),
    ] {
        let issued = authority.issue_with(file, NAMES, kind, DATES);
        let found = check(&issued, &[]);
        assert_eq!(level(&found, "PML_TLS_CERT_FILE", "is valid until"), "ok");
        assert_eq!(warnings(&found), 0, "{found:#?}");
        if kind != "ed25519" {
            // SEC1 and PKCS#1.
            authority.openssl(&format!("pkey -in {file}.key -traditional -out {file}.old"));
            let old = Issued { key: issued.key.with_extension("old"), ..issued.clone() };
            assert!(!fs::read_to_string(&old.key).unwrap().contains("BEGIN PRIVATE KEY"));
            assert_eq!(warnings(&check(&old, &[])), 0);
        }
        last = Some(issued);
    }
    let issued = last.unwrap();
    // One file with everything, the certificate first.
    let one = authority.folder().join("one.pem");
    let parts = [&issued.certificate, &authority.certificate(), &issued.key];
    fs::write(&one, parts.map(|path| fs::read(path).unwrap()).concat()).unwrap();
    fs::set_permissions(&one, fs::Permissions::from_mode(0o640)).unwrap();
    assert_eq!(warnings(&check(&Issued { certificate: one.clone(), key: one }, &[])), 0);

    let public = [("PML_PUBLIC_URL", "https://127.0.0.1:8443"), ("PML_ANONYMOUS_READ", "off")];
    assert_eq!(warnings(&check(&issued, &public)), 0);
    let other = [("PML_PUBLIC_URL", "https://other.example:8443")];
    let found = check(&issued, &other);
    assert_eq!(level(&found, "PML_TLS_CERT_FILE", "not for `other.example:8443`"), "warning");
    let found = check(&issued, &[("PML_PUBLIC_URL", "http://localhost:1")]);
    assert_eq!(level(&found, "PML_PUBLIC_URL", "https://"), "warning");
    let found = check(&issued, &[("PML_LISTEN", "0.0.0.0:3001")]);
    assert!(!found.iter().any(|it| it["subject"] == "PML_LISTEN"), "{found:#?}");
    let soon = authority.issue_with("soon", NAMES, EC, ["-80 days", "+10 days"]);
    assert_eq!(level(&check(&soon, &[]), "PML_TLS_CERT_FILE", "expires on"), "warning");
    fs::set_permissions(&issued.key, fs::Permissions::from_mode(0o644)).unwrap();
    assert_eq!(level(&check(&issued, &[]), "PML_TLS_KEY_FILE", "chmod 600"), "warning");
}

/// A pair that no client could connect with is an error at the start, before anything runs, and in `check`.
#[test]
fn pairs_that_cannot_be_used_are_refused_at_the_start() {
    let authority = Authority::new();
    let path = |name: &str| authority.folder().join(name);
    let good = authority.issue("good");
    let expired = authority.issue_with("expired", NAMES, EC, ["-90 days", "-1 day"]);
    let future = authority.issue_with("future", NAMES, EC, ["+1 day", "+90 days"]);
    let curve = authority.issue_with("p521", NAMES, "ec -pkeyopt ec_paramgen_curve:P-521", DATES);
    authority.openssl("pkey -in good.key -aes256 -passout pass:x -out encrypted.key");
    fs::write(path("empty"), "").unwrap();
    let broken = "-----BEGIN CERTIFICATE-----\nY2FuYXJ5\n-----END CERTIFICATE-----\n";
    fs::write(path("broken"), broken).unwrap();
    fs::write(path("secret"), "-----BEGIN PRIVATE KEY-----\ncanary!\n-----END PRIVATE KEY-----\n")
        .unwrap();
    let pair = |certificate: &Path, key: &Path| Issued {
        certificate: certificate.to_owned(),
        key: key.to_owned(),
    };
    let cases = [
        (pair(&path("none"), &good.key), "PML_TLS_CERT_FILE", "No such file"),
        (pair(&good.certificate, &path("none")), "PML_TLS_KEY_FILE", "No such file"),
        (pair(authority.folder(), &good.key), "PML_TLS_CERT_FILE", "not a regular file"),
        (pair(&path("empty"), &good.key), "PML_TLS_CERT_FILE", "no certificates in PEM form"),
        (pair(&good.key, &good.key), "PML_TLS_CERT_FILE", "no certificates in PEM form"),
        (pair(&path("broken"), &good.key), "PML_TLS_CERT_FILE", "malformed"),
        (pair(&good.certificate, &good.certificate), "PML_TLS_KEY_FILE", "no private key"),
        (pair(&good.certificate, &path("secret")), "PML_TLS_KEY_FILE", "no private key"),
        (pair(&good.certificate, &path("encrypted.key")), "PML_TLS_KEY_FILE", "openssl pkey"),
        (pair(&good.certificate, &expired.key), "PML_TLS_KEY_FILE", "does not belong"),
        (curve, "PML_TLS_KEY_FILE", "P-384"),
        (expired, "PML_TLS_CERT_FILE", "expired on"),
        (future, "PML_TLS_CERT_FILE", "is valid from"),
    ];
    let installation = Installation::new();
    let refused = |settings: &[(&str, &str)], subject: &str, words: &str| {
        let output = installation.command(&[]).envs(settings.iter().copied()).output().unwrap();
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert!(said.contains(subject) && said.contains(words), "{said}");
        assert!(!said.contains("canary") && !said.contains("Y2FuYXJ5"), "{said}");
        assert!(!installation.data_dir().exists(), "something was started");
        let mut command = installation.command(&["check", "--json"]);
        let (code, found) = findings(command.envs(settings.iter().copied()));
        assert_eq!((code, level(&found, subject, words)), (Some(1), "failed"));
    };
    for (issued, subject, words) in &cases {
        refused(&issued.settings(), subject, words);
    }
    let [certificate, key] = good.settings();
    refused(&[certificate], "PML_TLS_KEY_FILE", "set both");
    refused(&[key], "PML_TLS_CERT_FILE", "set both");
    // Control.
    let server = installation.start_with(&good.settings());
    assert_eq!(get(&format!("{}/health", server.url()), &[]).status, 200);
    assert_eq!(server.stop(), Some(0));
}

/// R-14, NX-05: silent connections and half handshakes count towards the limits, make room for others, and are closed.
#[test]
fn slow_handshakes_are_closed_to_serve_new_requests() {
    let authority = Authority::new();
    let issued = authority.issue("gateway");
    let mut settings = issued.settings().to_vec();
    settings.extend([("PML_CONNECTIONS", "60"), ("PML_CONNECTIONS_PER_ADDRESS", "40")]);
    let server = Installation::new().start_with(&settings);
    let open = |first: &[u8]| {
        let mut stream = TcpStream::connect(address(&server)).unwrap();
        // The gateway may have closed the connection already: that is the behaviour under test.
        let _ = stream.write_all(first);
        stream.set_nonblocking(true).unwrap();
        stream
    };
    let is_closed = |stream: &mut TcpStream| match stream.read(&mut [0; 64]) {
        Ok(count) => count == 0,
        Err(error) => error.kind() != ErrorKind::WouldBlock,
    };
    // The head of a record with a `ClientHello`, of which nothing follows.
    let half = [22, 3, 1, 2, 0, 1, 0, 1, 0xfc, 3, 3];
    let began = Instant::now();
    let mut slow: Vec<TcpStream> = Vec::new();
    for _ in 0..20 + scaled(400) {
        slow.extend([open(b""), open(&half)]);
    }
    poll("the limit of one address", PATIENCE, || {
        slow.retain_mut(|stream| !is_closed(stream));
        (slow.len() <= 40).then_some(())
    });
    for _ in 0..5 {
        let mut client = authority.connect(server.url());
        client.send("GET /health HTTP/1.1\r\nhost: localhost\r\n\r\n");
        client.read_until("\"ok\"");
    }
    eprintln!("served beside slow handshakes after {:?}", began.elapsed());
    poll("slow handshakes to be closed", PATIENCE, || {
        for stream in &mut slow {
            // The handshake never ends, but the connection is never idle.
            let _ = stream.write_all(&[0]);
        }
        slow.retain_mut(|stream| !is_closed(stream));
        slow.is_empty().then_some(())
    });
    assert_eq!(server.stop(), Some(0));
}

/// Plain HTTP on an address with TLS, and TLS on one without, get an answer that says so, or none; others are not
/// affected.
#[test]
fn the_wrong_protocol_is_refused() {
    let authority = Authority::new();
    let issued = authority.issue("gateway");
    let server = Installation::new().start_with(&issued.settings());
    let tenant = server.tenant();
    let plain = |body: &str| {
        let mut stream = TcpStream::connect(address(&server)).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let head = format!("host: localhost\r\nauthorization: Bearer {}", tenant.key);
        let length = body.len();
        let request =
            format!("POST /mcp HTTP/1.1\r\n{head}\r\ncontent-length: {length}\r\n\r\n{body}");
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    };
    for body in ["{}", &"x".repeat(100_000)] {
        let answer = plain(body);
        assert!(answer.starts_with("HTTP/1.1 400"), "{answer}");
        assert!(answer.contains("serves HTTPS") && answer.contains("https://"), "{answer}");
        assert!(answer.contains("connection: close"), "{answer}");
    }
    let url = server.url().replace("https://", "http://");
    let project = Project::at(&url).set("PML_API_KEY", &tenant.key);
    let refused =
        project.run_with(&["exec", "-"], b"return await mcp.math.eval({ expression: '1' })");
    assert!(!refused.status.success());
    let said = text(&refused.stderr);
    assert!(said.contains("HTTPS"), "{said}");
    // Neither HTTP nor TLS.
    let mut stream = TcpStream::connect(address(&server)).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.write_all(&[0x16; 64]).unwrap();
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    // At most an alert.
    assert!(answer.len() < 16, "{answer:?}");
    assert_eq!(get(&format!("{}/health", server.url()), &[]).status, 200);
    assert!(!server.installation().log().contains(&tenant.key));
    assert_eq!(server.stop(), Some(0));

    let shared = Server::shared();
    let url = shared.url().replace("http://", "https://");
    assert_eq!(curl(&authority, &[&format!("{url}/health")]).status.code(), Some(35));
    assert_eq!(get(&format!("{}/health", shared.url()), &[]).status, 200);
}
