//! `pml login --browser`: the device authorization grant, with a real authorization server and with hostile ones.

mod hostile;

use std::io::{BufRead as _, BufReader, Read as _};
use std::os::unix::fs::PermissionsExt as _;
use std::process::{Child, Stdio};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::keyring::secret_tool;
use crate::support::cli::{Project, text};
use crate::support::device_issuer::{
    CLIENT_ID, Decision, DeviceIssuer, change_stored, stored, visit,
};
use crate::support::expect::success;
use crate::support::server::Server;
use crate::support::{PATIENCE, poll};

const PROGRAM: &str = "return await mcp.json.parse({ data: '7' })";

/// A `pml login --browser` that waits for the person.
struct Waiting {
    child: Child,
    page: String,
    code: String,
    stderr: Option<JoinHandle<String>>,
}

impl Waiting {
    #[track_caller]
    fn start(project: &Project, more: &[&str]) -> Self {
        let mut command = project.command(&[&["login", "--browser"], more].concat());
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let mut shown = String::new();
        let mut values = Vec::new();
        while values.len() < 2 {
            let Some(line) = lines.next() else { panic!("no code was shown: {shown}") };
            let line = line.unwrap();
            values.extend(line.strip_prefix("  ").map(str::to_owned));
            shown += &(line + "\n");
        }
        let stderr = std::thread::spawn(move || {
            lines.map_while(Result::ok).fold(shown, |shown, line| shown + &line + "\n")
        });
        let code = values.pop().unwrap();
        Self { child, page: values.pop().unwrap(), code, stderr: Some(stderr) }
    }

    /// Waits for its end; returns the exit code, stdout and stderr.
    fn finish(mut self) -> (Option<i32>, String, String) {
        let mut stdout = String::new();
        self.child.stdout.take().unwrap().read_to_string(&mut stdout).unwrap();
        let code = self.child.wait().unwrap().code();
        (code, stdout, self.stderr.take().unwrap().join().unwrap())
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Signs in; returns everything that `pml` has printed.
#[track_caller]
fn sign_in(project: &Project) -> String {
    let waiting = Waiting::start(project, &[]);
    visit(&waiting.page, &waiting.code, Decision::Agree);
    let (code, stdout, stderr) = waiting.finish();
    assert_eq!(code, Some(0), "{stderr}");
    stdout + &stderr
}

fn credentials(project: &Project) -> std::path::PathBuf {
    project.home().join(".config/pml/credentials")
}

/// The texts of a sign-in that must never be shown.
fn secrets(entry: &Value) -> Vec<String> {
    ["access_token", "refresh_token"]
        .iter()
        .map(|name| entry[name].as_str().expect("a token").to_owned())
        .collect()
}

#[test]
fn a_person_signs_in_and_signs_out() {
    let issuer = DeviceIssuer::start(&json!({}));
    let server = issuer.gateway(&[("PML_OAUTH_CLI_CLIENT_ID", CLIENT_ID)]);
    let project = Project::at(server.url()).set("PML_LOG", "trace");
    let mut printed = sign_in(&project);
    assert!(printed.contains("Signed in to") && printed.contains("pml:execute"), "{printed}");
    assert!(printed.contains(&issuer.url) && printed.contains(".config/pml/credentials"));
    let mode = std::fs::metadata(credentials(&project)).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);

    // Commands use the token, also those that name no gateway.
    assert_eq!(success(&project.exec(PROGRAM).0), 7);
    let elsewhere = project.set("PML_CLOUD_URL", "");
    let ran = elsewhere.run_with(&["exec", "-", "--json"], PROGRAM.as_bytes());
    assert!(ran.status.success(), "{}", text(&ran.stderr));
    let doctor = elsewhere.run(&["doctor"]);
    let shown = text(&doctor.stdout);
    assert!(shown.contains("a sign-in through") && shown.contains("and is refreshed"), "{shown}");
    // It belongs to this origin alone.
    let entry = stored(&elsewhere, server.url());
    let project = elsewhere.set("PML_CLOUD_URL", &server.url().replace("127.0.0.1", "localhost"));
    assert_eq!(project.exec(PROGRAM).0["error_code"], "UNAUTHORIZED");
    let project = project.set("PML_CLOUD_URL", server.url());

    let logged_out = project.run(&["logout"]);
    let shown = text(&logged_out.stdout);
    assert!(shown.contains("its refresh token was revoked"), "{shown}{}", text(&logged_out.stderr));
    assert!(shown.contains("The access token is valid until 20"), "{shown}");
    assert_eq!(issuer.count("POST /token/revocation", 200), 1);
    assert!(!std::fs::read_to_string(credentials(&project)).unwrap().contains("token"));
    let secrets = secrets(&entry);
    let (status, answer) = issuer.refresh(&secrets[1]);
    assert_eq!((status, &answer["error"]), (400, &json!("invalid_grant")));
    assert_eq!(project.exec(PROGRAM).0["error_code"], "UNAUTHORIZED");

    // Nothing that was printed or logged contains a token.
    for output in [ran, doctor, logged_out] {
        printed += &text(&output.stdout);
        printed += &text(&output.stderr);
    }
    printed += &server.installation().log();
    for secret in secrets {
        assert!(!printed.contains(&secret[..20]), "a token was shown");
    }
    assert!(printed.contains("DEBUG") || printed.contains("TRACE"), "nothing was logged");
}

/// An access token that is due is refreshed, by one process at a time: the issuer accepts a refresh token once.
#[test]
fn several_processes_refresh_a_token_without_losing_it() {
    let issuer = DeviceIssuer::start(&json!({ "access_s": 5 }));
    let server = issuer.gateway(&[("PML_OAUTH_CLI_CLIENT_ID", CLIENT_ID)]);
    let project = Project::at(server.url());
    sign_in(&project);
    let mut earlier = stored(&project, server.url());
    for round in 0..3 {
        change_stored(&project, server.url(), &json!({ "refresh_at": "2020-01-01T00:00:00Z" }));
        std::thread::scope(|scope| {
            let all: Vec<_> =
                (0..4).map(|_| scope.spawn(|| success(&project.exec(PROGRAM).0).clone())).collect();
            for one in all {
                assert_eq!(one.join().unwrap(), 7, "round {round}");
            }
        });
        let now = stored(&project, server.url());
        for name in ["access_token", "refresh_token"] {
            assert_ne!(now[name], earlier[name], "round {round}: `{name}`");
        }
        assert_eq!(now["id"], earlier["id"]);
        earlier = now;
    }
    let mode = std::fs::metadata(credentials(&project)).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    // The agent's long-lived process goes on when the token expires.
    let mut pml = project.stdio();
    let first = stored(&project, server.url())["access_token"].clone();
    poll("the token to be refreshed by time alone", PATIENCE, || {
        assert_eq!(success(&pml.execute(PROGRAM)), 7);
        (stored(&project, server.url())["access_token"] != first).then_some(())
    });
}

/// Without the issuer, a token is used until it expires; then, programs run that need no gateway.
#[test]
fn a_token_is_used_until_it_expires_if_the_issuer_is_down() {
    let issuer = DeviceIssuer::start(&json!({}));
    let server = issuer.gateway(&[("PML_OAUTH_CLI_CLIENT_ID", CLIENT_ID)]);
    let project = Project::at(server.url()).allow(&["filesystem:read_text_file", "json:*"]);
    project.write("a.txt", "here");
    sign_in(&project);
    assert_eq!(success(&project.exec(PROGRAM).0), 7, "the gateway has the issuer's keys now");
    issuer.stop();
    let past = "2020-01-01T00:00:00Z";
    change_stored(&project, server.url(), &json!({ "refresh_at": past }));
    assert_eq!(success(&project.exec(PROGRAM).0), 7);
    change_stored(&project, server.url(), &json!({ "refresh_at": past, "expires_at": past }));
    let (refused, code) = project.exec(PROGRAM);
    assert_eq!((code, &refused["error_code"]), (4, &json!("GATEWAY_UNREACHABLE")), "{refused}");
    let message = refused["message"].as_str().unwrap();
    assert!(message.contains("needs a new access token") && message.contains(&issuer.url));
    success(&project.exec("return await mcp.filesystem.read_text_file({ path: 'a.txt' })").0);
    // What was stored is still there, and `pml logout` works offline.
    let logged_out = project.run(&["logout"]);
    let stderr = text(&logged_out.stderr);
    assert!(logged_out.status.success() && stderr.contains("may still be valid"), "{stderr}");
    assert!(!text(&logged_out.stdout).contains("was revoked"));
}

/// A token that the gateway refuses is refreshed, once.
#[test]
fn a_refused_token_is_refreshed_once() {
    let issuer = DeviceIssuer::start(&json!({}));
    let server = issuer.gateway(&[("PML_OAUTH_CLI_CLIENT_ID", CLIENT_ID)]);
    let project = Project::at(server.url());
    sign_in(&project);
    let tokens = issuer.count("POST /token", 200);
    change_stored(&project, server.url(), &json!({ "access_token": "canary-access" }));
    assert_eq!(success(&project.exec(PROGRAM).0), 7);
    assert_eq!(issuer.count("POST /token", 200), tokens + 1);
    assert_ne!(stored(&project, server.url())["access_token"], "canary-access");
    // If the refresh fails, the person has to sign in again.
    let lost = json!({ "access_token": "canary-access", "refresh_token": "canary-refresh" });
    change_stored(&project, server.url(), &lost);
    let output = project.run_with(&["exec", "-"], PROGRAM.as_bytes());
    let stderr = text(&output.stderr);
    assert_eq!(output.status.code(), Some(3), "{stderr}");
    assert!(stderr.contains("invalid_grant") && stderr.contains("pml login --browser"), "{stderr}");
    assert!(!stderr.contains("canary"), "{stderr}");
    // An entry that somebody has broken can be deleted.
    change_stored(&project, server.url(), &json!({ "access_token": "canary\r\nheader: x" }));
    let output = project.run_with(&["exec", "-"], PROGRAM.as_bytes());
    let stderr = text(&output.stderr);
    assert!(output.status.code() == Some(2) && stderr.contains("pml logout"), "{stderr}");
    assert!(project.run(&["logout"]).status.success());
    assert_eq!(project.exec(PROGRAM).0["error_code"], "UNAUTHORIZED");
}

/// In a keyring, a sign-in is refreshed and deleted as in the file. The program that accesses it keeps it in a file here.
#[test]
fn a_sign_in_is_stored_in_the_keyring() {
    const PROGRAM_OF_KEYRING: &str = r#"
        case "$1" in
            store) cat > "$HOME/kept" ;;
            lookup) cat "$HOME/kept" 2>&- ;;
            search) test -s "$HOME/kept" && echo found ;;
            clear) rm "$HOME/kept" ;;
        esac"#;
    let issuer = DeviceIssuer::start(&json!({}));
    let server = issuer.gateway(&[("PML_OAUTH_CLI_CLIENT_ID", CLIENT_ID)]);
    let project = Project::at(server.url());
    let path = secret_tool(&project.home(), PROGRAM_OF_KEYRING);
    let project =
        project.set("PATH", &path).set("DBUS_SESSION_BUS_ADDRESS", "unix:path=/nonexistent");
    let printed = sign_in(&project);
    assert!(printed.contains("stored in the keyring"), "{printed}");
    let kept = project.home().join("kept");
    let read = || -> Value { serde_json::from_slice(&std::fs::read(&kept).unwrap()).unwrap() };
    let first = read();
    assert!(!credentials(&project).exists(), "the tokens are in the file, too");
    assert_eq!(success(&project.exec(PROGRAM).0), 7);
    let mut refused = first.clone();
    refused["access_token"] = "canary-access".into();
    std::fs::write(&kept, refused.to_string()).unwrap();
    assert_eq!(success(&project.exec(PROGRAM).0), 7);
    assert_ne!(read()["refresh_token"], first["refresh_token"]);
    assert!(!credentials(&project).exists());
    let logged_out = text(&project.run(&["logout"]).stdout);
    assert!(logged_out.contains("its refresh token was revoked"), "{logged_out}");
    assert!(!kept.exists());
}

#[test]
fn a_person_declines_or_does_not_answer() {
    let issuer = DeviceIssuer::start(&json!({ "code_s": 8 }));
    let server = issuer.gateway(&[("PML_OAUTH_CLI_CLIENT_ID", CLIENT_ID)]);
    let project = Project::at(server.url());
    let [declined, expired, stopped] = [(); 3].map(|()| Waiting::start(&project, &["--no-open"]));
    visit(&declined.page, &declined.code, Decision::Decline);
    let started = Instant::now();
    let pid = rustix::process::Pid::from_child(&stopped.child);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    let (code, _, stderr) = stopped.finish();
    assert!(started.elapsed() < Duration::from_secs(4), "Ctrl-C was not noticed");
    assert_eq!(code, Some(1), "{stderr}");
    for (waiting, reason) in [(declined, "access_denied"), (expired, "expired_token")] {
        let (code, _, stderr) = waiting.finish();
        assert_eq!(code, Some(3), "{stderr}");
        assert!(stderr.contains(reason) && stderr.contains("pml login"), "{stderr}");
    }
    assert!(!credentials(&project).exists());
}

/// What is missing is named, with the side that has to set it.
#[test]
fn a_missing_setting_is_named() {
    let refused = |url: &str, arguments: &[&str], parts: &[&str]| {
        let project = Project::at(url);
        let output = project.run(&[&["login", "--browser"], arguments].concat());
        let stderr = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{stderr}");
        for part in parts.iter().chain(&["`pml login` with an API key works"]) {
            assert!(stderr.contains(part), "{part}: {stderr}");
        }
    };
    let plain = Server::shared();
    refused(plain.url(), &[], &["has no issuer to sign in with", "PML_OAUTH_ISSUER"]);
    let issuer = DeviceIssuer::start(&json!({ "device": false }));
    let server = issuer.gateway(&[]);
    let no_id = ["does not name a client id", "PML_OAUTH_CLI_CLIENT_ID", "`--client-id ID`"];
    refused(server.url(), &[], &no_id);
    let no_device = ["`device_authorization_endpoint`", "operator of the issuer", &issuer.url];
    refused(server.url(), &["--client-id", CLIENT_ID], &no_device);
    // The flags belong together.
    let output = Project::at(plain.url()).run(&["login", "--no-open"]);
    assert_eq!(output.status.code(), Some(2), "{}", text(&output.stderr));
}

#[test]
fn the_client_id_can_be_given_and_is_checked_by_the_issuer() {
    let issuer = DeviceIssuer::start(&json!({}));
    let server = issuer.gateway(&[]);
    let project = Project::at(server.url());
    drop(Waiting::start(&project, &["--client-id", CLIENT_ID]));
    let output = project.run(&["login", "--browser", "--client-id", "other"]);
    let stderr = text(&output.stderr);
    assert_eq!(output.status.code(), Some(3), "{stderr}");
    assert!(stderr.contains("invalid_client"), "{stderr}");
}
