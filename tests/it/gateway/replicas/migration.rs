//! A database that is migrated: under load, to a schema that is newer than the gateways; and with interruptions.

use std::process::Stdio;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use super::Replicas;
use super::load::{assert_effects, load};
use crate::support::cli::text;
use crate::support::counter::Counter;
use crate::support::postgres::Cluster;
use crate::support::server::Installation;
use crate::support::{PATIENCE, poll, scaled};

/// What a later release may change: a table that is written all the time, its index, and a table of its own. As the migrator
/// does it, in one transaction.
const NEXT: &str = "
    set lock_timeout = '1s';
    begin;
    alter table executions add column later text;
    create index executions_later on executions (later) where later is not null;
    create table later_things (id uuid primary key);
    insert into _sqlx_migrations (version, description, success, checksum, execution_time)
    values (9999, 'later', true, '', 0);";

/// R-27, UP-06: the schema of a later release arrives while two gateways of this one serve, after it was interrupted several
/// times. Then each gateway is replaced by one of this release, as when an upgrade is taken back. No client notices.
#[test]
fn gateways_serve_on_the_schema_of_a_later_release() {
    let set = Replicas::start(&[("PML_DRAIN_SECONDS", "5")]);
    let counter = Counter::start();
    let tenant = set.tenant("execute,read,admin");
    set.publish(&counter);
    let is_migrated =
        || set.cluster.sql("select max(version) from _sqlx_migrations").trim() == "9999";
    let rolled = AtomicBool::new(false);
    let sent = std::thread::scope(|scope| {
        let load =
            scope.spawn(|| load(&tenant, scaled(100).max(20), || rolled.load(Ordering::SeqCst)));
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            poll("some load", PATIENCE, || (counter.count() > 5).then_some(()));
            for _ in 0..scaled(20).max(3) {
                set.cluster.killed_after(NEXT);
                assert!(!is_migrated());
            }
            set.cluster.sql(&format!("{NEXT} commit;"));
            assert!(is_migrated());
            for gateway in &set.gateways {
                assert_eq!(gateway.ready().status, 200);
                gateway.pid().signal("TERM");
                gateway.starts_again();
            }
        }));
        rolled.store(true, Ordering::SeqCst);
        let sent = load.join().unwrap();
        result.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        sent
    });
    let wrong: Vec<_> = sent.iter().filter(|request| !request.is_done()).collect();
    assert!(wrong.is_empty(), "{} of {}: {wrong:#?}", wrong.len(), sent.len());
    assert_effects(&sent, &set.cluster, &counter);
}

/// What a database consists of: tables, columns, indexes, functions, policies and grants.
fn schema(cluster: &Cluster, database: &str) -> String {
    cluster.query(
        database,
        "select 'column', table_name, column_name, data_type, is_nullable, column_default
            from information_schema.columns where table_schema = 'public' order by 2, 3;
        select 'index', indexdef from pg_indexes where schemaname = 'public' order by 2;
        select 'function', oid::regprocedure::text, prosrc from pg_proc
            where pronamespace = 'public'::regnamespace order by 2;
        select 'policy', tablename, policyname, qual, with_check from pg_policies order by 2, 3;
        select 'grant', table_name, grantee, privilege_type from information_schema.role_table_grants
            where table_schema = 'public' order by 2, 3, 4;
        select 'invalid', indexrelid::regclass::text from pg_index where not indisvalid;",
    )
}

/// UP-06: `pml-server migrate` is killed at any instant, and two run at once. Whoever runs it again completes it, and the
/// schema is the same as after one run without interruption.
#[test]
fn a_killed_migration_can_be_resumed() {
    let cluster = Cluster::start();
    let migrate = |database: &str| {
        let url = |role: &str| {
            format!("postgres://{role}@127.0.0.1:{}/{database}?sslmode=disable", cluster.port())
        };
        let mut command = Installation::new().command(&["migrate"]);
        command.env("PML_DATABASE_URL", url("pml_app")).env("PML_MIGRATE_URL", url("pml_owner"));
        command.stdout(Stdio::null()).stderr(Stdio::piped());
        command
    };
    cluster.sql("create database whole owner pml_owner");
    let began = Instant::now();
    let output = migrate("whole").output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    let took = began.elapsed();
    let whole = schema(&cluster, "whole");
    assert!(whole.contains("executions") && !whole.contains("invalid"), "{whole}");

    let kills = scaled(50);
    let mut survived = 0;
    for number in 0..kills {
        let name = format!("part_{}", number % 5);
        if number < 5 {
            cluster.sql(&format!("create database {name} owner pml_owner"));
        }
        let mut running = [(), ()].map(|()| migrate(&name).spawn().unwrap());
        // Spread over the time that it takes.
        std::thread::sleep(took.mul_f64(f64::from(u32::try_from(number % 11).unwrap()) / 10.0));
        for child in &mut running {
            survived += usize::from(child.try_wait().unwrap().is_some());
            let _ = child.kill();
            child.wait().unwrap();
        }
    }
    assert!(survived < 2 * kills, "none was interrupted");
    for number in 0..kills.min(5) {
        let name = format!("part_{number}");
        let done = poll("the connections of killed programs to end", PATIENCE, || {
            let output = migrate(&name).output().unwrap();
            output.status.success().then_some(output)
        });
        assert_eq!(schema(&cluster, &name), whole, "{name}: {}", text(&done.stderr));
    }
}
