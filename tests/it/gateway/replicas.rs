//! Two gateways on one Postgres, behind the balancer of `deploy/Caddyfile`.

mod crash;
mod database;
mod load;
mod migration;
mod rolling;
mod shared;
mod stopping;

use std::sync::Mutex;

use serde_json::{Value, json};

use crate::identity::keys::call;
use crate::support::balancer::Balancer;
use crate::support::cli::text;
use crate::support::counter::Counter;
use crate::support::http::{HttpMcp, Reply, get};
use crate::support::mcp_client::Era;
use crate::support::ports::own_port;
use crate::support::postgres::{Cluster, PrimaryProxy};
use crate::support::processes::Pid;
use crate::support::server::{Installation, Server, Tenant};
use crate::support::{PATIENCE, poll};

/// The master key of all gateways.
const MASTER_KEY: &str = "2Vv6r0ZKqJx1mWc8n3Tq5oYH7uRbLgS4eDfPkA9iXwE=";

/// Two gateways behind a balancer. The fields are dropped in this order.
struct Replicas {
    balancer: Balancer,
    gateways: [Replica; 2],
    operator: Operator,
    /// What leads the gateways to the database.
    proxy: PrimaryProxy,
    cluster: Cluster,
}

impl Replicas {
    /// Starts them, with these settings of both gateways.
    fn start(settings: &[(&str, &str)]) -> Self {
        let cluster = Cluster::start();
        let proxy = PrimaryProxy::to(&cluster);
        let url = |role: &str| {
            format!("postgres://{role}@127.0.0.1:{}/pml?sslmode=disable", proxy.port())
        };
        let mut all = vec![
            ("PML_DATABASE_URL".to_owned(), url("pml_app")),
            ("PML_MASTER_KEY".to_owned(), MASTER_KEY.to_owned()),
            ("PML_TRUSTED_PROXIES".to_owned(), "127.0.0.1".to_owned()),
        ];
        all.extend(settings.iter().map(|(name, value)| ((*name).into(), (*value).into())));
        let operator = Operator { urls: [url("pml_app"), url("pml_owner")] };
        operator.run(&["migrate"]);
        operator.run(&["seed"]);
        let gateways = [Replica::new(&all), Replica::new(&all)];
        std::thread::scope(|scope| {
            for gateway in &gateways {
                scope.spawn(|| gateway.start());
            }
        });
        let addresses = gateways.each_ref().map(|gateway| gateway.address.clone());
        Self { balancer: Balancer::to(&addresses), gateways, operator, proxy, cluster }
    }

    /// Creates a tenant; requests with its URL go through the balancer.
    fn tenant(&self, rights: &str) -> Tenant {
        self.operator.run(&["scope", "create", "it.web"]);
        let made = ["keys", "create", "--scope", "it.web", "--can", rights];
        let key = self.operator.run(&made).trim().to_owned();
        Tenant { key, url: self.balancer.url().to_owned() }
    }

    /// Lets programs of the tenant call a counter.
    fn publish(&self, counter: &Counter) {
        self.cluster.sql(&counter.entry("it.web").statements());
    }
}

/// The operator's command line.
struct Operator {
    /// As `pml_app` and as `pml_owner`.
    urls: [String; 2],
}

impl Operator {
    #[track_caller]
    fn run(&self, arguments: &[&str]) -> String {
        let [app, owner] = &self.urls;
        let mut command = Installation::new().command(arguments);
        command.env("PML_DATABASE_URL", app).env("PML_MIGRATE_URL", owner);
        let output = command.output().expect("the built program runs");
        assert!(output.status.success(), "{arguments:?}: {}", text(&output.stderr));
        text(&output.stdout)
    }
}

/// One gateway, which keeps its address while it is down.
struct Replica {
    address: String,
    settings: Vec<(String, String)>,
    installation: Installation,
    running: Mutex<Option<Server>>,
}

impl Replica {
    fn new(settings: &[(String, String)]) -> Self {
        let address = format!("127.0.0.1:{}", own_port());
        let installation = Installation::new();
        Self { address, settings: settings.to_vec(), installation, running: Mutex::default() }
    }

    fn start(&self) {
        let mut command = self.installation.command(&[]);
        command.envs(self.settings.iter().map(|(name, value)| (name, value)));
        command.env("PML_LISTEN", &self.address);
        *self.running.lock().unwrap() = Some(self.installation.start_by(&command));
    }

    /// Returns the tenant with the URL of this gateway.
    fn direct(&self, tenant: &Tenant) -> Tenant {
        Tenant { url: format!("http://{}", self.address), key: tenant.key.clone() }
    }

    fn ready(&self) -> Reply {
        get(&format!("http://{}/ready", self.address), &[])
    }

    fn pid(&self) -> Pid {
        self.running.lock().unwrap().as_ref().expect("it runs").pid()
    }

    /// Waits until the gateway, which was told to stop, has ended; returns its exit code.
    fn ended(&self) -> Option<i32> {
        let pid = self.pid();
        poll("the gateway to end", PATIENCE, || (!pid.is_alive()).then_some(()));
        self.running.lock().unwrap().take()?.stop()
    }

    /// Starts the gateway again once it has ended by itself, and waits until it is ready.
    #[track_caller]
    fn starts_again(&self) {
        assert_eq!(self.ended(), Some(0), "{}", self.log());
        self.start();
        poll("the gateway to be ready", PATIENCE, || (self.ready().status == 200).then_some(()));
    }

    fn kill(&self) {
        if let Some(server) = self.running.lock().unwrap().take() {
            server.kill();
        }
    }

    fn log(&self) -> String {
        self.installation.log()
    }
}

/// Calls `counter:add` under a name of its own.
fn named(tenant: &Tenant, run: &str, arguments: &Value) -> Reply {
    let params = json!({ "name": "counter:add", "arguments": arguments,
        "_meta": { "ai.casys.pml/run": { "run_id": run, "call_index": 1 } } });
    let body = Era::Stateless.request(1, "tools/call", params).to_string();
    HttpMcp::new(tenant, Era::Stateless).post(body.as_bytes(), "tools/call", Some("counter:add"))
}

/// Runs a program.
fn execute(tenant: &Tenant, arguments: &Value) -> Reply {
    let params = json!({ "name": "pml_execute", "arguments": arguments });
    let body = Era::Stateless.request(1, "tools/call", params).to_string();
    HttpMcp::new(tenant, Era::Stateless).post(body.as_bytes(), "tools/call", Some("pml_execute"))
}

/// Returns the envelope in the answer to a program.
#[track_caller]
fn envelope(reply: &Reply) -> Value {
    assert_eq!(reply.status, 200, "{}", text(&reply.body));
    reply.json()["result"]["structuredContent"].clone()
}

/// Returns the record of an execution.
fn record(tenant: &Tenant, id: &str) -> Value {
    call(&tenant.key, "GET", &format!("{}/api/v1/executions/{id}", tenant.url), None).json()
}
