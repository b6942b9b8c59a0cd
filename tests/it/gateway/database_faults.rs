//! a database that is there and refuses: no connections, no writes, no disk, locks, deadlocks, slow statements.

use serde_json::{Value, json};

use crate::gateway::database_outage::{Setup, assert_no_internals};
use crate::gateway::database_stalls::assert_database_error;
use crate::support::http::{HttpMcp, get};
use crate::support::mcp_client::Era;
use crate::support::server::Tenant;
use crate::support::{PATIENCE, poll};

/// A fault of the database: the statements that make it and those that end it.
struct Fault {
    name: &'static str,
    begin: &'static str,
    end: &'static str,
    /// Whether `/ready` must say so. What concerns single writes shows only when one is made.
    is_unready: bool,
}

/// New connections and transactions get what was changed; those that exist are ended.
const END_CONNECTIONS: &str =
    "select pg_terminate_backend(pid) from pg_stat_activity where usename = 'pml_app'";

/// A trigger that makes each new key fail, and counts the attempts: a sequence is not rolled back.
macro_rules! failing_writes {
    ($body:literal) => {
        concat!(
            "create sequence attempts; grant usage on sequence attempts to pml_app; ",
            "create function fail() returns trigger language plpgsql as $$ begin perform nextval('attempts'); ",
            $body,
            " return new; end $$; create trigger a_fault before insert on api_keys for each row execute function fail()"
        )
    };
}
const NO_TRIGGER: &str =
    "drop trigger a_fault on api_keys; drop function fail; drop sequence attempts";

const FAULTS: &[Fault] = &[
    Fault {
        name: "no connection is left",
        begin: "alter role pml_app connection limit 0",
        end: "alter role pml_app connection limit -1",
        is_unready: true,
    },
    Fault {
        name: "the database only reads",
        begin: "alter role pml_app set default_transaction_read_only = on",
        end: "alter role pml_app reset default_transaction_read_only",
        is_unready: true,
    },
    Fault {
        name: "the disk is full",
        begin: failing_writes!(
            "raise exception 'could not extend file: No space left on device' using errcode = '53100';"
        ),
        end: NO_TRIGGER,
        is_unready: false,
    },
    Fault {
        name: "a deadlock",
        begin: failing_writes!("raise exception 'deadlock detected' using errcode = '40P01';"),
        end: NO_TRIGGER,
        is_unready: false,
    },
    Fault {
        name: "a slow statement",
        begin: failing_writes!("perform pg_sleep(600);"),
        end: NO_TRIGGER,
        is_unready: false,
    },
];

impl Setup {
    fn ready(&self) -> (u16, Value) {
        let reply = get(&format!("{}/ready", self.gateway.url()), &[]);
        (reply.status, reply.json())
    }

    /// Asserts that a write is refused as the database's fault, and that the gateway lives.
    fn assert_refused(&self, fault: &str, key: &str) {
        let reply = self.make_key(key);
        assert_eq!(reply.status, 503, "{fault}: {}", reply.json());
        assert_eq!(reply.json()["code"], "DATABASE_UNAVAILABLE", "{fault}");
        assert_eq!(reply.header("retry-after"), "1", "{fault}");
        assert_no_internals(&reply, fault);
        assert_eq!(get(&format!("{}/health", self.gateway.url()), &[]).status, 200, "{fault}");
    }

    fn sql(&self, statements: &str) -> String {
        self.owner.installation().sql(statements)
    }
}

/// Whatever the database refuses, clients get 503 and a code, nothing is tried again and again, `/ready` fails if the
/// gateway cannot work, and when the fault ends, the gateway works without a restart.
#[test]
fn a_database_that_refuses_is_reported_and_recovers() {
    let setup = Setup::new(&[]);
    let tenant = Tenant { key: setup.key.clone(), url: setup.gateway.url().to_owned() };
    let program = || HttpMcp::new(&tenant, Era::Stateless).execute("return 7");
    for (number, fault) in FAULTS.iter().enumerate() {
        let works = |when: &str| {
            poll(&format!("{}: {when}", fault.name), PATIENCE, || {
                (setup.make_key(&format!("{when}-{number}")).status == 201).then_some(())
            });
            poll("a program to run", PATIENCE, || (program()["result"] == 7).then_some(()));
        };
        works("before");
        setup.sql(fault.begin);
        if fault.is_unready {
            setup.sql(END_CONNECTIONS);
            poll("the gateway to say that it is not ready", PATIENCE, || {
                let (status, body) = setup.ready();
                (status == 503 && body["checks"]["database"] == json!(false)).then_some(())
            });
            // Nothing runs that could not be recorded.
            let params = json!({ "name": "pml_execute", "arguments": { "code": "return 7" } });
            let body = Era::Stateless.request(1, "tools/call", params).to_string();
            let client = HttpMcp::new(&tenant, Era::Stateless);
            let reply = client.post(body.as_bytes(), "tools/call", Some("pml_execute"));
            assert_database_error(fault.name, &reply);
        } else {
            assert_eq!(setup.ready().0, 200, "{}", fault.name);
        }
        let key = format!("during-{number}");
        setup.assert_refused(fault.name, &key);
        if !fault.is_unready {
            let attempts = setup.sql("select is_called::text || last_value from attempts");
            assert_eq!(attempts.trim(), "true1", "{}: a write is not repeated", fault.name);
        }
        setup.sql(fault.end);
        if fault.is_unready {
            setup.sql(END_CONNECTIONS);
        }
        works("after");
        poll("readiness", PATIENCE, || (setup.ready().0 == 200).then_some(()));
        assert_eq!(setup.made().get(&key), None, "{}: what was refused did not happen", fault.name);
    }
}

/// A lock that somebody holds ends a request in time, and only requests that need it.
#[test]
fn a_lock_that_is_held_is_not_waited_for_forever() {
    let setup = Setup::new(&[]);
    assert_eq!(setup.make_key("before").status, 201);
    std::thread::scope(|scope| {
        let holder = scope.spawn(|| {
            setup.sql("begin; lock table api_keys in share mode; select pg_sleep(10); commit");
        });
        let held = "select count(*) from pg_locks where mode = 'ShareLock' and granted \
            and relation = 'api_keys'::regclass";
        poll("the lock to be held", PATIENCE, || (setup.sql(held).trim() == "1").then_some(()));
        setup.assert_refused("a lock", "during");
        assert!(!holder.is_finished(), "the lock was held until the answer");
        // Others go on.
        let listed = setup.ask("GET", "/api/v1/executions", None);
        assert_eq!(listed.status, 200, "{}", listed.json());
        holder.join().unwrap();
    });
    assert_eq!(setup.make_key("after").status, 201);
    assert_eq!(setup.made().get("during"), None);
}
