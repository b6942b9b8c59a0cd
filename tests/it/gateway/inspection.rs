//! `pml-server check` and `doctor`: every mistake at once, and what is wrong on this machine.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::process::Command;

use serde_json::{Value, json};

use crate::support::cli::text;
use crate::support::gateway_stub::{Answer, GatewayStub};
use crate::support::server::{Installation, Server};

/// Runs a command and returns its exit code and its findings.
#[track_caller]
pub(super) fn findings(command: &mut Command) -> (Option<i32>, Vec<Value>) {
    let output = command.output().unwrap();
    let stdout = text(&output.stdout);
    assert!(!stdout.contains("canary") && !text(&output.stderr).contains("canary"), "{stdout}");
    let report: Value = serde_json::from_str(&stdout)
        .unwrap_or_else(|error| panic!("{error}: {stdout}{}", text(&output.stderr)));
    assert_eq!(report["ok"], output.status.success());
    (output.status.code(), report["findings"].as_array().unwrap().clone())
}

/// Returns the level of the finding on a subject whose message or remedy has these words.
pub(super) fn level<'a>(findings: &'a [Value], subject: &str, words: &str) -> &'a str {
    let found = findings.iter().find(|it| {
        it["subject"] == subject && format!("{} {}", it["message"], it["remedy"]).contains(words)
    });
    let Some(found) = found else { panic!("nothing on `{subject}` with `{words}`: {findings:#?}") };
    found["level"].as_str().unwrap()
}

/// A `check` without the settings of the tests.
fn check(installation: &Installation, arguments: &[&str]) -> Command {
    let mut command = installation.command(&[&["check", "--json"], arguments].concat());
    command.env_remove("PML_LISTEN").env_remove("PML_UPSTREAM_PRIVATE_HOSTS");
    command
}

/// Every mistake is reported at once, with its place, and no value is printed; valid settings pass.
#[test]
fn check_reports_every_mistake_at_once() {
    let installation = Installation::new();
    let key = installation.data_dir().with_extension("key");
    fs::write(&key, "canary").unwrap();
    fs::set_permissions(&key, fs::Permissions::from_mode(0o644)).unwrap();
    let mut command =
        check(&installation, &["--rate-per-key", "canary", "--oauth-issuer", "canary"]);
    command
        .env("PML_LISTEN", "canary")
        .env("PML_LOG", "=canary=")
        .env("PML_ISOLATION", "canary")
        .env("PML_DATABASE_URL", "postgres://u:canary@:x/")
        .env("PML_MASTER_KEY", "canary")
        .env("PML_MASTER_KEY_OLD_FILE", &key)
        .env("PML_METRICS_TOKEN", "canary")
        .env("PML_ALLOWED_HOSTS", "https://gw.example")
        .env("PML_LISTN", "canary")
        .env("PML_CLOUD_URL", "https://gw.example");
    let (code, found) = findings(&mut command);
    assert_eq!(code, Some(1));
    for (subject, words) in [
        ("PML_LISTEN", "write ADDRESS:PORT"),
        ("PML_LOG", "not a log filter"),
        ("PML_ISOLATION", "write one of `shared`, `strict`"),
        ("PML_RATE_PER_KEY", "`/min`"),
        ("PML_DATABASE_URL", "postgres://ROLE"),
        ("PML_MASTER_KEY", "openssl rand"),
        ("PML_MASTER_KEY_OLD", "chmod 600"),
        ("PML_METRICS_TOKEN", "openssl rand"),
        ("PML_ALLOWED_HOSTS", "HOST:PORT"),
        ("issuer", "PML_OAUTH_JWKS_URL"),
    ] {
        assert_eq!(level(&found, subject, words), "failed");
    }
    assert_eq!(level(&found, "PML_LISTN", "did you mean PML_LISTEN?"), "warning");
    assert!(!found.iter().any(|it| it["subject"] == "PML_CLOUD_URL"), "{found:#?}");
    let place =
        |subject: &str| found.iter().find(|it| it["subject"] == subject).unwrap()["place"].clone();
    assert_eq!(place("PML_RATE_PER_KEY"), "--rate-per-key");
    assert_eq!(place("PML_LISTEN"), "variable");
    assert!(!installation.data_dir().exists(), "`check` created something");

    let (code, found) = findings(&mut check(&installation, &[]));
    assert_eq!((code, found.len()), (Some(0), 1), "{found:#?}");
    // As text, the mistake and its place are on one line.
    let mut command = installation.command(&["check", "--anonymous-read=canary"]);
    let output = command.output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let words = "failed   PML_ANONYMOUS_READ (--anonymous-read): write one of `on`, `off`";
    assert!(text(&output.stdout).contains(words), "{}", text(&output.stdout));
    // A wrong use of the command itself is another exit code.
    assert_eq!(check(&installation, &["--no-such"]).output().unwrap().status.code(), Some(2));
}

/// Combinations that are dangerous or have no effect are warnings; their safe twins are not mentioned.
#[test]
fn check_warns_of_dangerous_combinations() {
    let installation = Installation::new();
    fs::create_dir_all(installation.data_dir()).unwrap();
    let local = installation.data_dir().join("local.key");
    fs::write(&local, "x").unwrap();
    fs::set_permissions(&local, fs::Permissions::from_mode(0o644)).unwrap();
    let own = [("PML_DATABASE_URL", "postgres://pml_app:canary@db.example/pml")];
    let public = [("PML_LISTEN", "0.0.0.0:3001")];
    for (settings, subject, words) in [
        (&public[..], "PML_LISTEN", "plain HTTP"),
        (&public, "PML_ALLOWED_HOSTS", "403"),
        (&public, "PML_ANONYMOUS_READ", "without an API key"),
        (&[("PML_TRUSTED_PROXIES", "0.0.0.0/0")], "PML_TRUSTED_PROXIES", "strangers"),
        (&[("PML_RATE_PER_ADDRESS", "off")], "PML_RATE_PER_ADDRESS", "not limited"),
        (&[("PML_METRICS_LISTEN", "0.0.0.0:9464")], "PML_METRICS_LISTEN", "without a credential"),
        (
            &[("PML_RELEASES_URL", "https://releases.example")],
            "PML_RELEASES_URL",
            "PML_RELEASES_KEYS",
        ),
        (&[], "PML_DATA_DIR", "others can read the API key"),
        (&own, "PML_MASTER_KEY", "no secrets"),
        (&own, "PML_DATABASE_URL", "verify-full"),
    ] {
        let mut command = check(&installation, &[]);
        command.env_remove("PML_PG_BIN").envs(settings.iter().copied());
        let (code, found) = findings(&mut command);
        assert_eq!((code, level(&found, subject, words)), (Some(0), "warning"));
    }
    let mut owner_only = check(&installation, &[]);
    let (code, found) = findings(owner_only.env("PML_MIGRATE_URL", "postgres://o@h/d"));
    assert_eq!((code, level(&found, "PML_DATABASE_URL", "`pml_app`")), (Some(1), "failed"));
    fs::set_permissions(&local, fs::Permissions::from_mode(0o600)).unwrap();
    let mut safe = check(&installation, &[]);
    safe.env_remove("PML_PG_BIN")
        .env("PML_LISTEN", "127.0.0.1:3001")
        .env("PML_PUBLIC_URL", "https://gw.example")
        .env("PML_ANONYMOUS_READ", "off")
        .env("PML_TRUSTED_PROXIES", "127.0.0.1,10.0.0.0/8")
        .env("PML_DATABASE_URL", "postgres://pml_app:canary@db.example/pml?sslmode=verify-full")
        .env("PML_MASTER_KEY", "2Vv6r0ZKqJx1mWc8n3Tq5oYH7uRbLgS4eDfPkA9iXwE=");
    let (code, found) = findings(&mut safe);
    assert_eq!((code, found.len()), (Some(0), 1), "{found:#?}");
}

fn doctor(installation: &Installation) -> Command {
    installation.command(&["doctor", "--json"])
}

/// `doctor` creates nothing, inspects a stopped gateway's database and a running gateway.
#[test]
fn doctor_inspects_an_installation_before_while_and_after_it_runs() {
    let installation = Installation::new();
    let (code, found) = findings(&mut doctor(&installation));
    assert_eq!(code, Some(0), "{found:#?}");
    assert_eq!(level(&found, "database", "the first start will create one"), "ok");
    assert_eq!(level(&found, "sandbox", "seccomp"), "ok");
    assert!(!installation.data_dir().exists(), "`doctor` created something");

    let server = installation.start();
    let address = server.url().strip_prefix("http://").unwrap().to_owned();
    let (code, found) = findings(doctor(&installation).env("PML_LISTEN", &address));
    assert_eq!(code, Some(0), "{found:#?}");
    for (subject, words) in [
        ("database", "private Postgres"),
        ("role", "`pml_app` owns nothing"),
        ("row-level security", "forced on every table"),
        ("schema", "as this program"),
        ("clock", "differs by"),
        ("master key", "decrypts its check value"),
        ("open files", "the limit is"),
        ("disk", "MiB free"),
        ("address", env!("CARGO_PKG_VERSION")),
    ] {
        let level = level(&found, subject, words);
        assert!(level == "ok" || matches!(subject, "disk" | "open files"), "{found:#?}");
    }
    assert_eq!(server.stop(), Some(0));
    let (code, found) = findings(doctor(&installation).env("PML_LISTEN", &address));
    assert_eq!(code, Some(0), "{found:#?}");
    assert_eq!(level(&found, "address", "is free"), "ok");
    assert_eq!(level(&found, "master key", "decrypts"), "ok");
}

/// What is broken is found: a role that row-level security does not bind, an unprotected table, a schema of another
/// version, a wrong master key, an address in use, an issuer without keys.
#[test]
fn doctor_finds_what_is_broken() {
    let cluster = Installation::new();
    let server = cluster.start();
    let socket = cluster.socket_folder();
    let url = |role: &str, database: &str| {
        format!("postgres://{role}@localhost:5432/{database}?host={socket}&sslmode=disable")
    };
    let key = cluster.data_dir().join("master.key");
    let own = Installation::new();
    let inspect = |role: &str, database: &str| {
        let mut command = doctor(&own);
        command.env("PML_DATABASE_URL", url(role, database)).env("PML_MASTER_KEY_FILE", &key);
        command
    };
    let (code, found) = findings(&mut inspect("pml_app", "pml"));
    assert_eq!(code, Some(0), "{found:#?}");
    for role in ["pml_owner", "pml"] {
        let (code, found) = findings(&mut inspect(role, "pml"));
        assert_eq!((code, level(&found, "role", "another's rows")), (Some(1), "failed"));
    }
    cluster.sql("create database empty owner pml_owner");
    let (code, found) = findings(&mut inspect("pml_app", "empty"));
    assert_eq!((code, level(&found, "schema", "pml-server migrate")), (Some(1), "failed"));
    let (code, found) =
        findings(inspect("pml_app", "pml").env("PML_MIGRATE_URL", url("pml_app", "pml")));
    assert_eq!((code, level(&found, "owner", "does not own")), (Some(1), "failed"));
    let other = "2Vv6r0ZKqJx1mWc8n3Tq5oYH7uRbLgS4eDfPkA9iXwE=";
    let mut wrong = inspect("pml_app", "pml");
    let (code, found) =
        findings(wrong.env_remove("PML_MASTER_KEY_FILE").env("PML_MASTER_KEY", other));
    assert_eq!((code, level(&found, "master key", "not configured")), (Some(1), "failed"));

    // A table of tenants whose policies do not bind its owner, and a schema that is newer.
    cluster.sql("alter table secrets no force row level security");
    cluster.sql(
        "insert into _sqlx_migrations (version, description, success, checksum, execution_time)
        values (9999, 'next', true, '', 0)",
    );
    let (code, found) = findings(&mut inspect("pml_app", "pml"));
    assert_eq!((code, level(&found, "row-level security", "secrets")), (Some(1), "failed"));
    assert_eq!(level(&found, "schema", "newer than this program's"), "warning");

    let in_use = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = in_use.local_addr().unwrap().to_string();
    drop(std::thread::spawn(move || in_use.incoming().for_each(drop)));
    let keys = GatewayStub::start(|_| Answer::Json(json!({ "keys": [] })));
    let (code, found) = findings(
        doctor(&Installation::new())
            .env("PML_LISTEN", address)
            .env("PML_OAUTH_ISSUER", "https://id.example")
            .env("PML_OAUTH_AUDIENCE", "https://gw.example/mcp")
            .env("PML_OAUTH_JWKS_URL", format!("{}/jwks", keys.url)),
    );
    assert_eq!((code, level(&found, "address", "in use")), (Some(1), "failed"));
    assert_eq!(level(&found, "issuer", "no `keys`"), "failed");
    let (code, found) =
        findings(doctor(&own).env("PML_DATABASE_URL", "postgres://pml_app:canary@127.0.0.1:1/pml"));
    assert_eq!((code, level(&found, "database", "127.0.0.1:1")), (Some(1), "failed"));
    server.stop();
}

/// The answers to a healthy gateway of another version, and to a program that only looks like one.
#[test]
fn doctor_names_the_version_that_answers() {
    let answers = |version: &'static str| {
        GatewayStub::start_with_head(move |head, _| {
            let body = match head.starts_with("GET /version") {
                true => json!({ "name": "pml-server", "version": version }),
                false => json!({ "status": "ok" }),
            };
            Answer::Json(body)
        })
    };
    let installation = Server::shared().installation();
    for (version, level_of, words) in
        [("99.1.0", "warning", "99.1.0"), ("\u{1b}[2Jcanary", "failed", "no healthy gateway")]
    {
        let stub = answers(version);
        let address =
            stub.url.strip_prefix("http://").unwrap().split('/').next().unwrap().to_owned();
        let (_, found) = findings(doctor(installation).env("PML_LISTEN", address));
        assert_eq!(level(&found, "address", words), level_of);
    }
}
