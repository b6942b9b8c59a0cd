//! `pml-server backup` and `restore`: consistent under load, and nothing changes when a restore is refused or fails.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};

use crate::support::cli::text;
use crate::support::expect::success;
use crate::support::gateway_stub::{Answer, GatewayStub};
use crate::support::http::{HttpMcp, Reply, get, send};
use crate::support::mcp_client::Era;
use crate::support::server::{Installation, Server, Tenant};
use crate::support::upstream::{Entry, host_of, scope_of};
use crate::support::{PATIENCE, poll};

const CANARY: &str = "canary-of-a-stored-secret";

/// An upstream that notes the credentials that it is sent.
struct Upstream {
    stub: GatewayStub,
    received: Arc<Mutex<Vec<String>>>,
}

impl Upstream {
    fn start() -> Self {
        let received = Arc::new(Mutex::new(Vec::new()));
        let record = Arc::clone(&received);
        let stub = GatewayStub::start_with_head(move |head, body| {
            if body["id"].is_null() {
                let status = if body.is_null() { 405 } else { 202 };
                return Answer::Raw(status, "text/plain", Vec::new());
            }
            let answer = match body["method"].as_str() {
                Some("initialize") => json!({ "result": {
                    "protocolVersion": "2025-11-25", "capabilities": { "tools": {} },
                    "serverInfo": { "name": "vault", "version": "1" },
                }}),
                Some("tools/call") => {
                    let sent = head.lines().find(|line| {
                        line.to_ascii_lowercase().starts_with("authorization: bearer ")
                    });
                    let sent = sent.map(|line| line[22..].trim().to_owned());
                    record.lock().unwrap().extend(sent);
                    json!({ "result": { "content": [{ "type": "text", "text": "done" }] } })
                }
                _ => json!({ "error": { "code": -32601, "message": "no such method" } }),
            };
            let mut whole = json!({ "jsonrpc": "2.0", "id": body["id"] });
            for (name, part) in answer.as_object().unwrap() {
                whole[name] = part.clone();
            }
            Answer::Json(whole)
        });
        Self { stub, received }
    }

    fn publish(&self, server: &Server, tenant: &Tenant) {
        let scope = scope_of(tenant);
        let take =
            json!({ "name": "take", "description": "Takes", "inputSchema": { "type": "object" } });
        let entry = Entry::http(&scope, "vault", &self.stub.url).needs("VAULT_KEY");
        Entry { tools: vec![take], ..entry }.publish(server.installation());
    }

    fn received(&self) -> Vec<String> {
        std::mem::take(&mut self.received.lock().unwrap())
    }
}

fn put(tenant: &Tenant, name: &str, value: &str, hosts: &[String]) -> Reply {
    let body = match hosts {
        [] => json!({ "value": value, "for": "project" }),
        hosts => json!({ "value": value, "for": "project", "hosts": hosts }),
    };
    let authorization = format!("Bearer {}", tenant.key);
    let headers = [("authorization", authorization.as_str()), ("content-type", "application/json")];
    let url = format!("{}/api/v1/secrets/{name}", tenant.url);
    send("PUT", &url, &headers, Some(body.to_string().into_bytes()))
}

fn at(server: &Server, tenant: &Tenant) -> Tenant {
    Tenant { url: server.url().to_owned(), ..tenant.clone() }
}

#[track_caller]
fn assert_works(tenant: &Tenant) {
    let client = HttpMcp::new(tenant, Era::Stateless);
    assert_eq!(success(&client.execute("return await mcp.math.eval({ expression: '6 * 7' })")), 42);
}

fn file(name: &str) -> PathBuf {
    crate::support::guard::folder("b").join(name)
}

fn shown(path: &Path) -> String {
    path.display().to_string()
}

/// Asserts that a command failed with these words, and returns its stderr.
#[track_caller]
fn refused(output: &Output, words: &[&str]) -> String {
    let stderr = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    for word in words {
        assert!(stderr.contains(word), "no `{word}` in: {stderr}");
    }
    assert!(!stderr.contains("canary"), "{stderr}");
    stderr
}

/// The nonces of all stored secrets, in hex.
fn nonces(installation: &Installation) -> Vec<String> {
    let rows =
        installation.sql("select encode(substr(sealed, 2, 12), 'hex') from secrets order by 1");
    rows.lines().map(str::to_owned).collect()
}

/// a backup under load is restored elsewhere. With a wrong master key, nothing is changed; with the right one,
/// secrets are readable, API keys work, and the nonces of secrets that are stored later are those of no other secret.
#[test]
fn a_backup_under_load_is_restored_with_its_master_key_only() {
    let home = Installation::new();
    let server = home.start();
    let tenant = server.tenant_with_rights("execute,read,admin");
    let upstream = Upstream::start();
    upstream.publish(&server, &tenant);
    let hosts = [host_of(&upstream.stub.url)];
    assert_eq!(put(&tenant, "VAULT_KEY", CANARY, &hosts).status, 201);
    let backup = file("pml.backup");
    let (ended, stored) = (AtomicBool::new(false), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        for client in 0..2 {
            let (tenant, ended, stored) = (&tenant, &ended, &stored);
            scope.spawn(move || {
                for n in 0.. {
                    if ended.load(Ordering::Relaxed) {
                        break;
                    }
                    let reply = put(tenant, &format!("LOAD_{client}_{n}"), "x", &[]);
                    assert_eq!(reply.status, 201, "{}", text(&reply.body));
                    stored.fetch_add(1, Ordering::Relaxed);
                    assert_works(tenant);
                }
            });
        }
        let some = |least| (stored.load(Ordering::Relaxed) >= least).then_some(());
        poll("load before the backup", PATIENCE, || some(4));
        let output = home.run(&["backup", &shown(&backup)]);
        let during = stored.load(Ordering::Relaxed);
        poll("load after the backup", PATIENCE, || some(during + 4));
        ended.store(true, Ordering::Relaxed);
        assert!(output.status.success(), "{}", text(&output.stderr));
        assert!(text(&output.stderr).contains("back it up separately"), "{}", text(&output.stderr));
    });
    assert_eq!(fs::metadata(&backup).unwrap().permissions().mode() & 0o777, 0o600);
    let bytes = fs::read(&backup).unwrap();
    let key = fs::read_to_string(home.data_dir().join("master.key")).unwrap();
    for secret in [CANARY, key.trim(), &tenant.key] {
        let is_there = bytes.windows(secret.len()).any(|window| window == secret.as_bytes());
        assert!(!is_there, "the backup contains a secret");
    }
    // What is stored after the backup, under the same data key.
    let before = nonces(&home);
    server.stop();

    let elsewhere = Installation::new();
    fs::create_dir_all(elsewhere.data_dir()).unwrap();
    let own_key = elsewhere.data_dir().join("master.key");
    let restore = ["restore", &shown(&backup)];
    refused(
        &elsewhere.run(&restore),
        &["none is configured", "PML_MASTER_KEY", "Nothing was changed"],
    );
    let other = "2Vv6r0ZKqJx1mWc8n3Tq5oYH7uRbLgS4eDfPkA9iXwE=";
    for flags in [&[][..], &["--without-master-key"], &["--replace"]] {
        let mut command = elsewhere.command(&[&restore[..], flags].concat());
        let output = command.env("PML_MASTER_KEY", other).output().unwrap();
        let stderr = refused(&output, &["the master key is wrong", "Nothing was changed"]);
        assert!(!stderr.contains(other), "{stderr}");
    }
    assert!(!elsewhere.data_dir().join("postgres").exists(), "a refused restore changed something");

    fs::write(&own_key, &key).unwrap();
    fs::set_permissions(&own_key, fs::Permissions::from_mode(0o600)).unwrap();
    let printed = elsewhere.run_ok(&["restore", &shown(&backup), "--dry-run"]);
    assert!(printed.contains("can be restored"), "{printed}");
    let printed = elsewhere.run_ok(&restore);
    assert!(printed.starts_with("Restored the backup of "), "{printed}");
    let restored = elsewhere.start();
    let there = at(&restored, &tenant);
    assert_works(&there);
    upstream.received();
    success(&HttpMcp::new(&there, Era::Stateless).execute("return await mcp.vault.take({})"));
    assert_eq!(upstream.received(), [CANARY]);
    // The backup is of one moment: the audit log of the scope has no gap.
    let authorization = format!("Bearer {}", there.key);
    let audit = get(
        &format!("{}/api/v1/audit?verify=true", there.url),
        &[("authorization", &authorization)],
    );
    assert_eq!(audit.json()["chain"]["intact"], true, "{}", text(&audit.body));
    let held = elsewhere.sql("select count(*) from pg_class where relforcerowsecurity");
    assert!(held.trim().parse::<u32>().unwrap() > 20, "{held}");

    let taken: BTreeSet<String> = nonces(&elsewhere).into_iter().collect();
    for n in 0..8 {
        assert_eq!(put(&there, &format!("LATER_{n}"), "x", &[]).status, 201);
    }
    let later: Vec<String> =
        nonces(&elsewhere).into_iter().filter(|nonce| !taken.contains(nonce)).collect();
    assert_eq!(later.len(), 8);
    // Neither those in the backup, nor those that the first gateway used after it.
    assert!(later.iter().all(|nonce| !before.contains(nonce)), "a nonce was used twice");
    assert_eq!(restored.stop(), Some(0));
}

/// The private Postgres is replaced only on request and only while nobody uses it, and an existing file is kept.
#[test]
fn a_restore_replaces_only_what_it_may() {
    let installation = Installation::new();
    let server = installation.start();
    let tenant = server.tenant();
    let backup = file("pml.backup");
    installation.run_ok(&["backup", &shown(&backup)]);
    let first = fs::read(&backup).unwrap();
    refused(&installation.run(&["backup", &shown(&backup)]), &["exists", "--force"]);
    assert_eq!(fs::read(&backup).unwrap(), first);
    installation.run_ok(&["backup", "--force", &shown(&backup)]);
    // To stdout, which is then the backup alone.
    let output = installation.run(&["backup", "-"]);
    assert!(output.status.success() && output.stdout.starts_with(b"PML-BACKUP 1\n"));
    let folder = backup.parent().unwrap();
    assert_eq!(fs::read_dir(folder).unwrap().count(), 1, "nothing temporary is left");
    let later = server.tenant();

    let restore = ["restore", &shown(&backup)];
    for flags in [&[][..], &["--replace"]] {
        let output = installation.run(&[&restore[..], flags].concat());
        refused(&output, &["uses the private Postgres", "stop it first"]);
    }
    assert_works(&later);
    assert_eq!(server.stop(), Some(0));
    refused(&installation.run(&restore), &["is not empty", "--replace", "Nothing was changed"]);
    installation.run_ok(&["restore", "--replace", "--dry-run", &shown(&backup)]);

    let again = installation.start();
    assert_works(&at(&again, &later));
    assert_eq!(again.stop(), Some(0));
    installation.run_ok(&["restore", "--replace", &shown(&backup)]);
    let replaced = installation.start();
    assert_works(&at(&replaced, &tenant));
    let bearer = format!("Bearer {}", later.key);
    let unknown =
        get(&format!("{}/api/v1/keys/self", replaced.url()), &[("authorization", &bearer)]);
    assert_eq!(unknown.status, 401, "this key was created after the backup");
    let databases = replaced.installation().sql("select datname from pg_database order by 1");
    assert_eq!(databases.trim(), "pml\npostgres\ntemplate0\ntemplate1");
    assert_eq!(replaced.stop(), Some(0));
}

/// A damaged, cut, foreign or newer file is refused; a restore that fails half-way leaves what was there.
#[test]
fn a_backup_that_cannot_be_restored_changes_nothing() {
    let installation = Installation::new();
    let server = installation.start();
    let tenant = server.tenant();
    let backup = file("pml.backup");
    installation.run_ok(&["backup", &shown(&backup)]);
    assert_eq!(server.stop(), Some(0));
    let whole = fs::read(&backup).unwrap();
    let other = backup.with_extension("other");
    let mut changed = whole.clone();
    let middle = changed.len() / 2;
    changed[middle] ^= 1;
    let cases: [(&[u8], &str); 4] = [
        (&changed, "its checksum is wrong"),
        (&whole[..middle], "damaged or incomplete"),
        (b"not a backup", "not a file of `pml-server backup`"),
        (b"PML-BACKUP 2\n{}\n", "newer format"),
    ];
    for (bytes, words) in cases {
        fs::write(&other, bytes).unwrap();
        let output = installation.run(&["restore", "--replace", &shown(&other)]);
        refused(&output, &[words, "nothing was changed"]);
    }
    refused(
        &installation.run(&["restore", &shown(backup.parent().unwrap())]),
        &["nothing was changed"],
    );

    // A file that is complete, but whose migration is newer, or whose dump fails in its middle.
    let (lines, dump) = split(&whole);
    let mut newer = lines.clone();
    newer["migration"] = json!(9_999);
    fs::write(&other, joined(&newer, &dump)).unwrap();
    let output = installation.run(&["restore", "--replace", &shown(&other)]);
    refused(&output, &["of migration 9999, newer than this program's", "Nothing was changed"]);
    let cut = &dump[..dump.len() / 2];
    fs::write(&other, joined(&lines, cut)).unwrap();
    let output = installation.run(&["restore", "--replace", &shown(&other)]);
    refused(&output, &["`pg_restore` failed", "nothing was changed"]);
    let mut newer = lines.clone();
    newer["postgres"] = json!(99);
    fs::write(&other, joined(&newer, &dump)).unwrap();
    let output = installation.run(&["restore", "--replace", &shown(&other)]);
    refused(&output, &["from Postgres 99", "Nothing was changed"]);

    let again = installation.start();
    assert_works(&at(&again, &tenant));
    let databases = installation.sql("select count(*) from pg_database where datname like 'pml%'");
    assert_eq!(databases.trim(), "1");
    assert_eq!(again.stop(), Some(0));
}

/// A backup of an older schema is migrated. If a migration fails, the restore has changed nothing.
#[test]
fn an_older_backup_is_migrated_or_not_restored_at_all() {
    let installation = Installation::new();
    let server = installation.start();
    let tenant = server.tenant();
    let (backup, broken) = (file("pml.backup"), file("broken.backup"));
    // The schema says that it lacks a migration whose table it has.
    installation.sql("delete from _sqlx_migrations where version = 34");
    installation.run_ok(&["backup", &shown(&broken)]);
    installation.sql("drop function expire_synced_tools; drop table synced_servers");
    installation.run_ok(&["backup", &shown(&backup)]);
    server.kill();

    let elsewhere = Installation::new();
    fs::create_dir_all(elsewhere.data_dir()).unwrap();
    let key = elsewhere.data_dir().join("master.key");
    fs::copy(installation.data_dir().join("master.key"), &key).unwrap();
    elsewhere.run_ok(&["restore", &shown(&backup)]);
    let output = elsewhere.run(&["restore", "--replace", &shown(&broken)]);
    refused(&output, &["nothing was changed", "could not run the migrations"]);
    let restored = elsewhere.start();
    assert_works(&at(&restored, &tenant));
    let migrated = "select count(*), count(to_regclass('synced_servers')) from _sqlx_migrations where version = 34";
    assert_eq!(elsewhere.sql(migrated).trim(), "1|1");
    assert_eq!(restored.stop(), Some(0));
}

/// Splits a backup into its manifest and its dump.
fn split(whole: &[u8]) -> (Value, Vec<u8>) {
    let mut lines = whole.splitn(3, |byte| *byte == b'\n');
    let manifest = serde_json::from_slice(lines.nth(1).unwrap()).unwrap();
    let rest = lines.next().unwrap();
    (manifest, rest[..rest.len() - 73].to_vec())
}

/// The inverse of [`split`], with a correct checksum.
fn joined(manifest: &Value, dump: &[u8]) -> Vec<u8> {
    use sha2::Digest as _;
    let mut bytes = format!("PML-BACKUP 1\n{manifest}\n").into_bytes();
    bytes.extend_from_slice(dump);
    let sum = data_encoding::HEXLOWER.encode(&sha2::Sha256::digest(&bytes));
    bytes.extend_from_slice(format!("\nsha256 {sum}\n").as_bytes());
    bytes
}

/// Without the programs of Postgres, or with older ones, the error says what to install.
#[test]
fn missing_programs_are_named_with_what_to_install() {
    let server = Server::shared();
    let mut command = server.installation().command(&["backup", &shown(&file("x"))]);
    let output = command.env("PML_PG_BIN", file("")).output().unwrap();
    refused(&output, &["pg_dump", "apt install", "postgresql-client", "PML_PG_BIN"]);
}

/// A backup of an own Postgres: as a role that reads every row, into an empty database of the same owner.
#[test]
fn an_own_postgres_is_backed_up_and_restored() {
    let cluster = Installation::new();
    let server = cluster.start();
    let tenant = server.tenant_with_rights("execute,read,admin");
    cluster.sql(
        "create role pml_backup login bypassrls; grant pg_read_all_data to pml_backup;
         grant connect on database pml to pml_backup",
    );
    cluster.sql("create database target owner pml_owner");
    let socket = cluster.socket_folder();
    let url = |role: &str, database: &str| {
        format!("postgres://{role}@localhost:5432/{database}?host={socket}&sslmode=disable")
    };
    let key = shown(&cluster.data_dir().join("master.key"));
    let own = Installation::new();
    let command = |database: &str, arguments: &[&str]| -> Command {
        let mut command = own.command(arguments);
        command
            .env("PML_DATABASE_URL", url("pml_app", database))
            .env("PML_MIGRATE_URL", url("pml_owner", database))
            .env("PML_MASTER_KEY_FILE", &key);
        command
    };
    let backup = shown(&file("pml.backup"));
    // The owner is bound by row-level security, so its dump would lack rows.
    let output = command("pml", &["backup", &backup]).output().unwrap();
    refused(
        &output,
        &[
            "`pml_owner` of PML_MIGRATE_URL cannot read every row",
            "create role pml_backup",
            "PML_BACKUP_URL",
        ],
    );
    assert!(!Path::new(&backup).exists());
    let output = command("pml", &["backup", &backup])
        .env("PML_BACKUP_URL", url("pml_backup", "pml"))
        .output();
    let output = output.unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));

    let restore = |database: &str, flags: &[&str]| {
        command(database, &[&["restore", &backup], flags].concat()).output().unwrap()
    };
    refused(&restore("pml", &[]), &["is not empty", "Nothing was changed"]);
    refused(&restore("target", &["--replace"]), &["private Postgres only", "Nothing was changed"]);
    let mut superuser = command("target", &["restore", &backup]);
    let output = superuser.env("PML_MIGRATE_URL", url("pml", "target")).output().unwrap();
    refused(&output, &["belong to the role `pml_owner`", "Nothing was changed"]);
    let other = "2Vv6r0ZKqJx1mWc8n3Tq5oYH7uRbLgS4eDfPkA9iXwE=";
    let mut wrong = command("target", &["restore", &backup]);
    let output =
        wrong.env_remove("PML_MASTER_KEY_FILE").env("PML_MASTER_KEY", other).output().unwrap();
    refused(&output, &["the master key is wrong", "Nothing was changed"]);
    let output = restore("target", &[]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    refused(&restore("target", &[]), &["is not empty"]);

    let settings =
        [("PML_DATABASE_URL", url("pml_app", "target")), ("PML_MASTER_KEY_FILE", key.clone())];
    let settings: Vec<(&str, &str)> =
        settings.iter().map(|(name, value)| (*name, value.as_str())).collect();
    let restored = own.start_with(&settings);
    assert_works(&at(&restored, &tenant));
    assert_eq!(put(&at(&restored, &tenant), "A", "x", &[]).status, 201);
    assert_eq!(restored.stop(), Some(0));
}
