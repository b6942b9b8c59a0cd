//! The operator's tasks: first start, keys and scopes, restart, crash.

use std::os::unix::fs::PermissionsExt as _;

use serde_json::json;

use crate::support::cli::text;
use crate::support::expect::success;
use crate::support::http::{HttpMcp, get};
use crate::support::mcp_client::Era;
use crate::support::server::{Installation, Server, Tenant};
use crate::support::{PATIENCE, poll, scaled};

fn tenant(server: &Server, key: &str) -> Tenant {
    Tenant { key: key.trim().into(), url: server.url().into() }
}

#[track_caller]
fn assert_works(server: &Server, key: &str) {
    let client = HttpMcp::new(&tenant(server, key), Era::Stateless);
    assert_eq!(success(&client.execute("return await mcp.math.eval({ expression: '6 * 7' })")), 42);
}

/// The first start prints one screen with the address, the API key and the next steps.
#[test]
fn the_first_start_prints_the_address_key_and_next_steps() {
    let installation = Installation::new();
    let server = installation.start();
    let screen = server.start_screen();
    let key = installation.first_key();
    let shown = screen
        .replace(server.url(), "[url]")
        .replace(&key, "[key]")
        .replace(&installation.data_dir().display().to_string(), "[data]")
        .replace(env!("CARGO_PKG_VERSION"), "[version]");
    insta::assert_snapshot!("first_start", shown);
    let file = installation.data_dir().join("local.key");
    let mode = std::fs::metadata(file).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    assert!(screen.lines().count() <= 24, "one screen:\n{screen}");
    assert_works(&server, &key);

    // After a restart, the same key works and is not printed again.
    assert_eq!(server.stop(), Some(0));
    let again = installation.start();
    assert!(!again.start_screen().contains(&key), "the key was printed again");
    assert_eq!(installation.first_key(), key);
    assert_works(&again, &key);
    assert!(!installation.log().contains(&key), "the key was logged");
    assert_eq!(again.stop(), Some(0));
}

/// A first key that cannot be read may still be valid, so it is neither replaced nor joined by a second one.
#[test]
fn an_unreadable_first_key_is_not_replaced() {
    let installation = Installation::new();
    let server = installation.start();
    let key = installation.first_key();
    assert_eq!(server.stop(), Some(0));
    let file = installation.data_dir().join("local.key");
    let aside = installation.data_dir().join("aside");
    std::fs::rename(&file, &aside).unwrap();
    std::fs::create_dir(&file).unwrap();
    let output = installation.run(&["serve"]);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && stderr.contains("could not read"), "{stderr}");
    std::fs::remove_dir(&file).unwrap();
    std::fs::rename(&aside, &file).unwrap();
    let again = installation.start();
    assert_works(&again, &key);
    let keys = installation.run_ok(&["keys", "list", "--scope", "local.default"]);
    assert_eq!(keys.matches("first key").count(), 1, "{keys}");
    // A key that is not valid is replaced.
    assert_eq!(again.stop(), Some(0));
    std::fs::write(&file, b"\xff").unwrap();
    let last = installation.start();
    assert_works(&last, &installation.first_key());
    assert_eq!(last.stop(), Some(0));
}

/// `/health`, `/ready` and `/version` answer without a key.
#[test]
fn health_ready_and_version_answer() {
    let base = Server::shared().url();
    assert_eq!(get(&format!("{base}/health"), &[]).json(), json!({ "status": "ok" }));
    let ready = get(&format!("{base}/ready"), &[]);
    assert_eq!((ready.status, &ready.json()["checks"]["database"]), (200, &json!(true)));
    let version = get(&format!("{base}/version"), &[]).json();
    assert_eq!(version["name"], "pml-server");
}

/// `scope create` and `keys create` work with and without a running server.
#[test]
fn keys_are_created_with_and_without_a_running_server() {
    let installation = Installation::new();
    // Without a server, on a data directory that does not exist yet.
    installation.run_ok(&["migrate"]);
    let seeded = installation.run_ok(&["seed"]);
    assert!(seeded.contains("servers") && seeded.contains("tools"), "{seeded}");
    installation.run_ok(&["scope", "create", "acme.web"]);
    let offline = installation.run_ok(&["keys", "create", "--scope", "acme.web"]);
    assert_eq!(offline.lines().count(), 1, "stdout has more than the key");
    assert!(offline.starts_with("pml_"), "not the form of a key");

    let server = installation.start();
    assert_works(&server, &offline);
    // While it runs.
    let printed = installation.run_ok(&["scope", "create", "acme.other"]);
    assert!(printed.contains("`acme.other` now exists"), "{printed}");
    let printed = installation.run_ok(&["scope", "create", "acme.other"]);
    assert!(printed.contains("already existed"), "{printed}");
    let online =
        installation.run_ok(&["keys", "create", "--scope", "acme.other", "--can", "execute"]);
    assert_works(&server, &online);
    assert_ne!(offline, online);
    assert_eq!(server.stop(), Some(0));
}

/// Concurrent commands on a running installation do not conflict.
#[test]
fn commands_can_run_concurrently() {
    let server = Installation::new().start();
    let installation = server.installation();
    std::thread::scope(|scope| {
        for n in 0..8 {
            scope.spawn(move || {
                installation.run_ok(&["scope", "create", &format!("once.p{n}")]);
                installation.run_ok(&["keys", "create", "--scope", &format!("once.p{n}")]);
            });
        }
    });
    assert_eq!(server.stop(), Some(0));
}

/// Invalid input to the operator's commands is reported with the correction.
#[test]
fn invalid_command_input_is_reported_with_the_correction() {
    let installation = Server::shared().installation();
    for (arguments, message) in [
        (&["keys", "create", "--scope", "no.such"][..], "pml-server scope create no.such"),
        (&["scope", "create", "one"], "one"),
        (&["scope", "create", "A B.c"], "A B.c"),
        (
            &["keys", "create", "--scope", "local.default", "--can", "everything"],
            "execute, read, publish or admin",
        ),
        (&["frobnicate"], "frobnicate"),
    ] {
        let output = installation.run(arguments);
        let stderr = text(&output.stderr);
        assert!(!output.status.success(), "{arguments:?}");
        assert!(stderr.contains(message), "{arguments:?}: {stderr}");
        assert!(output.stdout.is_empty(), "{arguments:?}");
        assert!(!stderr.contains("panicked"), "{stderr}");
    }
}

/// If the database cannot be reached, the error names it, the reason and the remedy within seconds, and never the
/// password.
#[test]
fn an_unreachable_database_is_reported_without_its_password() {
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = free.local_addr().unwrap().port();
    drop(free);
    let place = format!("database `pml` at 127.0.0.1:{port}");
    let installation = Installation::new();
    let (app, owner) = (
        format!("postgres://pml_app:canary@127.0.0.1:{port}/pml"),
        format!("postgres://pml_owner:canary@127.0.0.1:{port}/pml"),
    );
    for (arguments, role, variable) in [
        (&["serve", "--listen", "127.0.0.1:0"][..], "pml_app", "PML_DATABASE_URL"),
        (&["--listen", "127.0.0.1:0"], "pml_app", "PML_DATABASE_URL"),
        (&["keys", "list", "--scope", "a.b"], "pml_app", "PML_DATABASE_URL"),
        (&["migrate"], "pml_owner", "PML_MIGRATE_URL"),
    ] {
        let started = std::time::Instant::now();
        let mut command = installation.command(arguments);
        let command = command.env("PML_DATABASE_URL", &app).env("PML_MIGRATE_URL", &owner);
        let output = command.output().unwrap();
        let stderr = text(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{stderr}");
        assert!(started.elapsed() < PATIENCE / 2, "{:?}", started.elapsed());
        let words = format!("error: cannot connect to {place} as `{role}`: Connection refused");
        assert!(stderr.contains(&words) && stderr.contains("start that Postgres"), "{stderr}");
        assert!(stderr.contains(variable) && !stderr.contains("canary"), "{stderr}");
    }
    let mut command = installation.command(&["--listen", "127.0.0.1:0"]);
    let output = command.env("PML_DATABASE_URL", "postgres://u:canary@:x/").output().unwrap();
    let stderr = text(&output.stderr);
    assert!(stderr.contains("PML_DATABASE_URL cannot be used: "), "{stderr}");
    assert!(!stderr.contains("canary"), "{stderr}");
}

/// A command never takes a private Postgres for the operator's own: one URL is enough to know which is meant. The jobs in
/// `deploy/` that migrate have only the owner's.
#[test]
fn either_url_means_a_database_of_ones_own() {
    let installation = Installation::new();
    let run = |arguments: &[&str], variable: &str| {
        let mut command = installation.command(arguments);
        // Nobody listens at port 1.
        let output = command.env(variable, "postgres://role@127.0.0.1:1/pml").output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{arguments:?}");
        text(&output.stderr)
    };
    for arguments in [&["migrate"][..], &["seed"], &["scope", "create", "a.b"]] {
        let stderr = run(arguments, "PML_MIGRATE_URL");
        assert!(stderr.contains("cannot connect to database `pml` at 127.0.0.1:1"), "{stderr}");
        let stderr = run(arguments, "PML_DATABASE_URL");
        assert!(stderr.contains("set PML_MIGRATE_URL"), "{stderr}");
    }
    for arguments in [&["serve"][..], &["keys", "list", "--scope", "a.b"]] {
        let stderr = run(arguments, "PML_MIGRATE_URL");
        assert!(stderr.contains("set PML_DATABASE_URL"), "{stderr}");
        let stderr = run(arguments, "PML_DATABASE_URL");
        assert!(stderr.contains("cannot connect to database `pml` at 127.0.0.1:1"), "{stderr}");
    }
    assert!(!installation.data_dir().join("postgres").exists(), "a private Postgres was started");
}

/// The options of `serve` work without the name of the subcommand.
#[test]
fn serve_options_work_without_the_subcommand() {
    let installation = Installation::new();
    let server = installation.start_by(&installation.command(&["--listen", "127.0.0.2:0"]));
    assert!(server.url().starts_with("http://127.0.0.2:"), "{}", server.url());
    assert_eq!(get(&format!("{}/health", server.url()), &[]).status, 200);
    assert_eq!(server.stop(), Some(0));
    let refused = installation.run(&["--listen", "3001"]);
    assert_eq!(refused.status.code(), Some(2));
    assert!(text(&refused.stderr).contains("127.0.0.1:3001"), "{}", text(&refused.stderr));
}

/// Lists have column headers, readable times and correct plurals.
#[test]
fn lists_have_headers_and_readable_times() {
    let installation = Installation::new();
    let server = installation.start();
    let scope = "local.default";
    let listed = installation.run_ok(&["keys", "list", "--scope", scope]);
    let lines: Vec<&str> = listed.lines().collect();
    assert!(
        lines[0].starts_with("ID ") && lines[0].ends_with("CREATED               BY        NAME"),
        "{listed}"
    );
    assert!(lines[1].contains(" UTC  operator  first key") && !lines[1].contains('Z'), "{listed}");
    let none = installation.run_ok(&["keys", "list", "--scope", "no.such"]);
    assert_eq!(none, "`no.such` has no keys.\n");
    let status = installation.run_ok(&["secrets", "status"]);
    assert!(status.starts_with("MASTER KEY "), "{status}");
    assert!(status.contains("0 data keys") || status.contains("1 data key "), "{status}");
    assert!(status.contains(" UTC  current\n"), "{status}");
    assert_eq!(server.stop(), Some(0));
}

/// If the address is in use, the error names the setting to change.
#[test]
fn an_address_in_use_names_pml_listen() {
    let server = Server::shared();
    let address = server.url().strip_prefix("http://").unwrap();
    let output = Installation::new().command(&[]).env("PML_LISTEN", address).output().unwrap();
    assert!(!output.status.success());
    assert!(text(&output.stderr).contains("PML_LISTEN"), "{}", text(&output.stderr));
}

/// after the gateway was killed, the next start recovers its database.
#[test]
fn a_killed_gateway_recovers_at_the_next_start() {
    let installation = Installation::new();
    let mut key = String::new();
    for round in 0..scaled(20) {
        let server = installation.start();
        if round == 0 {
            key = installation.first_key();
        }
        assert_works(&server, &key);
        let made = installation.run_ok(&["keys", "create", "--scope", "local.default"]);
        let tree = server.pid().tree();
        server.kill();
        poll("every process of the killed gateway to end", PATIENCE, || {
            tree.iter().all(|pid| !pid.is_alive()).then_some(())
        });
        let again = installation.start();
        assert_eq!(installation.first_key(), key);
        assert_works(&again, &key);
        assert_works(&again, &made);
        again.kill();
    }
}

/// when the private Postgres dies, the gateway that started it and every other gateway on it exit and log the
/// reason. The next start recovers.
#[test]
fn a_gateway_exits_when_its_private_postgres_dies() {
    let installation = Installation::new();
    let first = installation.start();
    let key = installation.first_key();
    let second = installation.start();
    assert_works(&second, &key);
    let postmaster = first
        .pid()
        .tree()
        .into_iter()
        .find(|pid| pid.command_line().contains("postgres") && pid.command_line().contains("-D"))
        .expect("the private Postgres runs beneath the gateway that started it");
    postmaster.signal("KILL");
    for server in [&first, &second] {
        poll("the gateway to end with its database", PATIENCE, || {
            (!server.pid().is_alive()).then_some(())
        });
    }
    assert!(
        installation.log().contains("the private Postgres has exited"),
        "{}",
        installation.log()
    );
    assert_works(&installation.start(), &key);
}

/// An invalid setting is reported once, in one sentence.
#[test]
fn invalid_settings_are_reported_once() {
    let installation = Installation::new();
    for (name, value, code, expected) in [
        ("PML_LISTEN", "bad", 2, "invalid value 'bad' for '--listen"),
        ("PML_SANDBOX_WARM", "-1", 2, "invalid value '-1' for '--sandbox-warm"),
        ("PML_ISOLATION", "loose", 2, "invalid value 'loose' for '--isolation"),
        ("PML_DATA_DIR", "/dev/null/x", 1, "cannot"),
        ("PML_DATABASE_URL", "nonsense", 1, "PML_DATABASE_URL cannot be used"),
    ] {
        let output = installation.command(&[]).env(name, value).output().unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{stderr}");
        assert!(stderr.contains(expected), "{stderr}");
        assert_eq!(stderr.matches("error: ").count(), 1, "{stderr}");
        assert!(stderr.matches("(os error").count() <= 1, "{stderr}");
    }
}

/// `pml_discover` finds tools by name, pattern and intent.
#[test]
fn discover_finds_tools_by_name_pattern_and_intent() {
    let client = HttpMcp::new(&Server::shared().tenant(), Era::Stateless);
    let by =
        |arguments| client.call("pml_discover", arguments)["structuredContent"]["tools"].clone();
    let exact = by(json!({ "name": "json:parse" }));
    assert_eq!(exact[0]["id"], "json:parse");
    assert_eq!(exact[0]["signature"], "mcp.json.parse({ data: string }) => Promise<unknown>");
    assert_eq!(exact[0].get("input_schema"), None, "{exact}");
    let whole = by(json!({ "name": "json:parse", "include": ["schemas"] }));
    assert!(whole[0]["input_schema"]["properties"]["data"].is_object(), "{whole}");
    let by_pattern = by(json!({ "pattern": "filesystem:*", "limit": 50 }));
    assert!(by_pattern.as_array().is_some_and(|tools| tools.len() >= 10), "{by_pattern}");
    assert!(
        by_pattern.as_array().unwrap().iter().all(|t| t["routing"] == "client"),
        "{by_pattern}"
    );
    let by_text = by(json!({ "intent": "parse a JSON text" }));
    assert!(by_text.to_string().contains("json:parse"), "{by_text}");
    let both = client.call("pml_discover", json!({ "name": "a:b", "intent": "x" }));
    assert_eq!(both["structuredContent"]["error_code"], "INVALID_REQUEST", "{both}");
}

/// `completions` and `man` describe every command, need no database, and contain no value of a setting.
#[test]
fn there_are_completions_and_manual_pages() {
    let installation = Installation::new();
    let with_secret = |arguments: &[&str]| {
        let mut command = installation.command(arguments);
        command.env("PML_DATABASE_URL", "postgres://u:canary@127.0.0.1:1/x");
        command.output().unwrap()
    };
    for (shell, words) in
        [("bash", "complete -F"), ("zsh", "#compdef pml-server"), ("fish", "-c pml-server")]
    {
        let script = with_secret(&["completions", shell]);
        assert!(script.status.success(), "{}", text(&script.stderr));
        let script = text(&script.stdout);
        assert!(script.contains(words) && script.contains("migrate"), "{shell}: {script}");
        assert!(!script.contains("canary"), "{script}");
    }
    let folder = installation.data_dir().with_file_name("man1");
    let written = with_secret(&["man", folder.to_str().unwrap()]);
    assert!(written.status.success(), "{}", text(&written.stderr));
    for (page, words) in [
        ("pml-server.1", "pml\\-server\\-serve(1)"),
        ("pml-server-serve.1", "\\-\\-listen"),
        ("pml-server-keys-create.1", "\\-\\-scope"),
    ] {
        let page = std::fs::read_to_string(folder.join(page)).unwrap();
        assert!(page.contains(words) && !page.contains("canary"), "{words}: {page}");
    }
    let file = folder.join("pml-server.1/x");
    let refused = with_secret(&["man", file.to_str().unwrap()]);
    assert_eq!(refused.status.code(), Some(1));
    assert!(text(&refused.stderr).contains("cannot write manual pages to"), "{refused:?}");
    assert!(!installation.data_dir().exists(), "no database was started");
}
