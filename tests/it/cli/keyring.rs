//! API keys in the keyring of the user's session, with a real session bus and a real GNOME keyring.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::skipped::skipped;
use crate::support::cli::{Project, finish, text};
use crate::support::expect::success;
use crate::support::guard::{self, Guarded};
use crate::support::server::{Server, Tenant};
use crate::support::{PATIENCE, poll};

const PROGRAM: &str = "return await mcp.json.parse({ data: '7' })";

/// A bus without service activation, so that it cannot start a keyring by itself.
const BUS: &str = r#"<!DOCTYPE busconfig PUBLIC "-//freedesktop//DTD D-Bus Bus Configuration 1.0//EN" "http://www.freedesktop.org/standards/dbus/1.0/busconfig.dtd">
<busconfig>
  <type>session</type>
  <listen>unix:dir=FOLDER</listen>
  <policy context="default">
    <allow send_destination="*" eavesdrop="true"/>
    <allow eavesdrop="true"/>
    <allow own="*"/>
  </policy>
</busconfig>
"#;

/// A user's session, with a bus and a keyring.
struct Session {
    folder: PathBuf,
    address: String,
    keyring: Option<Arc<Guarded>>,
    _bus: Arc<Guarded>,
}

impl Session {
    /// Starts a session with an unlocked keyring. Returns `None` if the machine lacks the programs.
    fn start() -> Option<Self> {
        let is_there = |name: &str| {
            let path = std::env::var_os("PATH").unwrap_or_default();
            std::env::split_paths(&path).any(|folder| folder.join(name).is_file())
        };
        if !["dbus-daemon", "gnome-keyring-daemon", "secret-tool"].into_iter().all(is_there) {
            return None;
        }
        let folder = guard::folder("k");
        let config = folder.join("bus.conf");
        let text = BUS.replace("FOLDER", &folder.display().to_string());
        std::fs::write(&config, text).unwrap();
        std::fs::write(folder.join("password"), "open sesame").unwrap();
        let mut bus = Command::new("dbus-daemon");
        bus.args(["--nofork", "--print-address=1"]);
        bus.arg(format!("--config-file={}", config.display()));
        let bus = Guarded::start(&bus, &folder.join("bus.log"));
        let address = bus.line(PATIENCE, |line| line.starts_with("unix:")).expect("the bus starts");
        let mut session = Self { folder, address, keyring: None, _bus: bus };
        session.restart(
            "exec gnome-keyring-daemon --foreground --unlock --components=secrets < password",
        );
        Some(session)
    }

    /// Restarts the keyring, which is then locked as after a boot.
    fn lock(&mut self) {
        self.restart("exec gnome-keyring-daemon --foreground --start --components=secrets");
    }

    fn restart(&mut self, script: &str) {
        if let Some(keyring) = self.keyring.take() {
            keyring.stop();
        }
        let mut shell = Command::new("sh");
        shell.args(["-c", &format!("cd {} && {script}", self.folder.display())]);
        shell.env("PATH", std::env::var_os("PATH").unwrap_or_default());
        shell.env("HOME", &self.folder).env("XDG_RUNTIME_DIR", &self.folder);
        shell.env("DBUS_SESSION_BUS_ADDRESS", &self.address);
        self.keyring = Some(Guarded::start(&shell, &self.folder.join("keyring.log")));
        poll("the keyring to answer", PATIENCE, || {
            let found = self.tool(&["search", "--all", "application", "none"]);
            found.status.success().then_some(())
        });
    }

    /// Queries the keyring without `pml`.
    fn tool(&self, arguments: &[&str]) -> std::process::Output {
        let mut tool = Command::new("secret-tool");
        tool.args(arguments).env("DBUS_SESSION_BUS_ADDRESS", &self.address);
        tool.env("HOME", &self.folder);
        finish(tool, b"")
    }

    /// Returns the API key that the keyring has for an origin.
    fn key_for(&self, origin: &str) -> String {
        text(&self.tool(&["lookup", "application", "pml", "origin", origin]).stdout)
    }

    /// Creates a project of a user in this session.
    fn project(&self, tenant: &Tenant) -> Project {
        Project::at(&tenant.url).set("DBUS_SESSION_BUS_ADDRESS", &self.address)
    }
}

#[track_caller]
fn login(project: &Project, key: &str) -> String {
    let output = project.run_with(&["login"], key.as_bytes());
    assert!(output.status.success(), "{}", text(&output.stderr));
    text(&output.stdout)
}

#[test]
fn login_stores_the_api_key_in_the_keyring() {
    let Some(session) = Session::start() else {
        skipped!("needs dbus-daemon, gnome-keyring-daemon and secret-tool");
    };
    let tenant = Server::shared().tenant();
    let file = |project: &Project| {
        std::fs::read_to_string(project.home().join(".config/pml/credentials")).unwrap_or_default()
    };
    let project = session.project(&tenant).set("PML_KEYRING", "off");
    assert!(login(&project, &tenant.key).contains(".config/pml/credentials"));
    assert!(file(&project).contains(&tenant.key) && session.key_for(&tenant.url).is_empty());

    let project = project.set("PML_KEYRING", "");
    let printed = login(&project, &tenant.key);
    assert!(
        printed.contains("stored in the keyring") && !printed.contains(&tenant.key[8..]),
        "{printed}"
    );
    assert_eq!(session.key_for(&tenant.url), tenant.key);
    assert!(!file(&project).contains(&tenant.key), "the key is in the file, too");
    assert_eq!(success(&project.exec(PROGRAM).0), 7);
    let doctor = text(&project.run(&["doctor"]).stdout);
    assert!(doctor.contains("from the keyring"), "{doctor}");
    // `PML_API_KEY` takes precedence. With the keyring turned off, no key is found.
    let other = Server::shared().tenant();
    let named = session.project(&tenant).set("PML_API_KEY", &other.key);
    assert!(text(&named.run(&["doctor"]).stdout).contains("from `PML_API_KEY`"));
    let without = session.project(&tenant).set("PML_KEYRING", "off");
    assert_eq!(without.exec(PROGRAM).0["error_code"], "UNAUTHORIZED");
    // A key is stored for an origin: the same gateway under another host name has none.
    let elsewhere = tenant.url.replace("127.0.0.1", "localhost");
    let elsewhere = session.project(&Tenant { key: String::new(), url: elsewhere });
    assert_eq!(elsewhere.exec(PROGRAM).0["error_code"], "UNAUTHORIZED");

    let logged_out = project.run(&["logout"]);
    assert!(
        text(&logged_out.stdout).contains("until it is revoked"),
        "{}",
        text(&logged_out.stderr)
    );
    assert!(session.key_for(&tenant.url).is_empty());
    assert!(text(&project.run(&["logout"]).stdout).starts_with("No API key was stored"));
    assert_eq!(project.exec(PROGRAM).0["error_code"], "UNAUTHORIZED");
}

/// There is nobody to unlock the keyring. Commands that need the key fail at once instead of waiting.
#[test]
fn a_locked_keyring_is_reported_without_waiting() {
    let Some(mut session) = Session::start() else {
        skipped!("needs dbus-daemon, gnome-keyring-daemon and secret-tool");
    };
    let (tenant, other) = (Server::shared().tenant(), Server::shared().tenant());
    let project = session.project(&tenant);
    login(&project, &tenant.key);
    session.lock();
    assert_eq!(project.exec(PROGRAM).0["error_code"], "UNAUTHORIZED");
    // The older key would be used again once the keyring is unlocked.
    let refused = project.run_with(&["login"], other.key.as_bytes());
    assert_eq!(refused.status.code(), Some(2), "{}", text(&refused.stdout));
    assert!(text(&refused.stderr).contains("an older API key"), "{}", text(&refused.stderr));
    let refused = project.run(&["logout"]);
    assert_eq!(refused.status.code(), Some(1), "{}", text(&refused.stdout));
    assert!(text(&refused.stderr).contains("is locked"), "{}", text(&refused.stderr));
    let gateway = project.home().join(".config/pml/gateway");
    assert!(gateway.exists(), "the next `logout` needs the gateway");
    // A key for another origin is stored in the file, with a warning that states the reason.
    let elsewhere = tenant.url.replace("127.0.0.1", "localhost");
    let elsewhere = session.project(&Tenant { key: String::new(), url: elsewhere });
    let output = elsewhere.run_with(&["login"], other.key.as_bytes());
    assert!(text(&output.stdout).contains("credentials"), "{}", text(&output.stderr));
    assert!(
        text(&output.stderr).contains("the API key is stored in the file"),
        "{}",
        text(&output.stderr)
    );
    assert_eq!(success(&elsewhere.exec(PROGRAM).0), 7);
}

/// If the keyring hangs, for example in a password prompt, the file is used after a few seconds.
#[test]
fn a_hanging_keyring_falls_back_to_the_file_after_seconds() {
    let tenant = Server::shared().tenant();
    let project = Project::at(&tenant.url);
    login(&project, &tenant.key);
    let path = secret_tool(&project.home(), "exec sleep 600");
    let project = project
        .set("PATH", &path)
        .set("DBUS_SESSION_BUS_ADDRESS", "unix:path=/nonexistent")
        .set("PML_LOG", "client_cli=debug");
    let started = Instant::now();
    let mut pml = project.stdio();
    pml.request("tools/list", serde_json::json!({}));
    assert!(started.elapsed() < Duration::from_secs(4), "the agent waited for the keyring");
    assert_eq!(success(&pml.execute(PROGRAM)), 7);
    assert!(started.elapsed() < PATIENCE);
    let log = std::fs::read_to_string(project.log()).unwrap();
    assert_eq!(log.matches("the keyring did not answer within 5 s").count(), 1, "{log}");
}

/// NX-02: a `secret-tool` in the workspace receives no key and supplies none.
#[test]
fn secret_tool_is_never_run_from_the_workspace() {
    let tenant = Server::shared().tenant();
    let project = Project::at(&tenant.url);
    let path = secret_tool(&project.workspace(), "cat > taken; echo pml_key_theirs");
    let project =
        project.set("PATH", &path).set("DBUS_SESSION_BUS_ADDRESS", "unix:path=/nonexistent");
    login(&project, &tenant.key);
    assert_eq!(success(&project.exec(PROGRAM).0), 7);
    assert!(!project.path("taken").exists());
}

/// Puts a `secret-tool` into a folder; returns a `PATH` that begins there.
pub(crate) fn secret_tool(folder: &Path, script: &str) -> String {
    let file = folder.join("secret-tool");
    std::fs::write(&file, format!("#!/bin/sh\n{script}\n")).unwrap();
    std::fs::set_permissions(&file, PermissionsExt::from_mode(0o755)).unwrap();
    format!("{}:{}", folder.display(), std::env::var("PATH").unwrap())
}

#[test]
fn an_invalid_pml_keyring_setting_is_refused() {
    let project = Project::offline().set("PML_KEYRING", "no");
    let output = project.run_with(&["login"], b"pml_key_x");
    assert_eq!(output.status.code(), Some(2));
    let stderr = text(&output.stderr);
    assert!(stderr.contains("`PML_KEYRING` is neither `on` nor `off`"), "{stderr}");
}
