//! `GET /install.sh` of a gateway.

use std::path::Path;
use std::process::Command;

use super::install::{Machine, parts_do_nothing};
use super::support::{Options, Release};
use crate::support::cli::{finish, text};
use crate::support::gateway_stub::{Answer, GatewayStub};
use crate::support::guard;
use crate::support::http::{get, send};
use crate::support::server::{Installation, Server};

/// Serves the files of a release over HTTP.
fn web(release: &Release) -> GatewayStub {
    let folder = release.folder.clone();
    GatewayStub::start_with_head(move |head, _| {
        let path = head.split(' ').nth(1).unwrap_or_default();
        let path = path.strip_prefix("/releases/").unwrap_or_default();
        match std::fs::read(folder.join(path)) {
            Ok(content) if !path.contains("..") => Answer::Raw(200, "text/plain", content),
            _ => Answer::Raw(404, "text/plain", Vec::new()),
        }
    })
}

/// UP-05: the gateway serves the script of a release with the operator's address and keys. It installs from there, and cut
/// off anywhere it does nothing.
#[test]
fn a_gateway_serves_the_install_script_of_the_operator() {
    let release = Release::new(&Options::default());
    let web = web(&release);
    let (place, key) = (format!("{}/releases", web.url), release.keys.public());
    let home = Installation::new();
    // An address with a slash at its end is the same one.
    let server = home.start_with(&[
        ("PML_RELEASES_URL", &format!("{place}/")),
        ("PML_RELEASES_KEYS", &key),
        // The script needs no key, even where nothing else can be read without one.
        ("PML_ANONYMOUS_READ", "off"),
    ]);
    let url = format!("{}/install.sh", server.url());
    let served = get(&url, &[]);
    assert_eq!(served.status, 200);
    assert_eq!(served.header("content-type"), "text/x-shellscript; charset=utf-8");
    assert_eq!(served.header("cache-control"), "public, max-age=300");
    let etag = served.header("etag");
    let again = get(&url, &[("if-none-match", etag)]);
    assert_eq!((again.status, again.body.len(), again.header("etag")), (304, 0, etag));
    assert_eq!(get(&url, &[("if-none-match", "\"other\"")]).body, served.body);
    let head = send("HEAD", &url, &[], None);
    assert_eq!((head.status, head.body.len(), head.header("etag")), (200, 0, etag));

    let machine = Machine::new("openssl").with("curl");
    let script = machine.home.with_file_name("install.sh");
    std::fs::write(&script, &served.body).unwrap();
    parts_do_nothing(&machine, &served.body, |part| machine.command(part).output().unwrap());
    assert_eq!(web.requests(), 0, "a part of the script downloaded something");
    let installed = machine.command(&script).output().unwrap();
    assert!(installed.status.success(), "{}", text(&installed.stderr));
    assert_eq!(std::fs::read(machine.program()).unwrap(), release.program);
    assert_eq!(server.stop(), Some(0));

    // The same bytes as in a release that was built for this address.
    let built = guard::folder("script");
    let release_script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy/release.sh");
    let mut command = Command::new("bash");
    command.arg(release_script).args(["--install-script".as_ref(), built.as_os_str()]);
    command.env("PML_RELEASE_URL", &place).env("PML_RELEASE_KEYS", &key);
    let output = finish(command, b"");
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert_eq!(std::fs::read(built.join("install.sh")).unwrap(), served.body);
}

/// Without releases, the answer says which setting is missing; a value that the shell would run is refused at the start.
#[test]
fn a_gateway_without_releases_says_what_is_missing() {
    let reply = get(&format!("{}/install.sh", Server::shared().url()), &[]);
    assert_eq!((reply.status, reply.header("content-type")), (404, "application/problem+json"));
    let problem = reply.json();
    assert_eq!(problem["code"], "NOT_FOUND");
    for (name, words) in [("detail", "PML_RELEASES_URL is not set"), ("hint", "docs/install.md")] {
        assert!(problem[name].as_str().unwrap().contains(words), "{problem:#}");
    }
    let home = Installation::new();
    for (name, value) in [
        ("PML_RELEASES_URL", "https://a.example/';id;'"),
        ("PML_RELEASES_URL", "http://a.example"),
        ("PML_RELEASES_KEYS", "RWQ'; id; '"),
    ] {
        let output = finish(
            {
                let mut command = home.command(&["check"]);
                command.env(name, value);
                command
            },
            b"",
        );
        let said = text(&output.stdout);
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert!(said.contains(&format!("failed   {name}")), "{said}");
    }
}
