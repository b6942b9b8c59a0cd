//! Caddy, a real balancer, with the configuration in `deploy/Caddyfile`.

use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use super::guard::{self, Guarded};
use super::http::get;
use super::mcp_servers::{BALANCER, python};
use super::ports::own_port;
use super::{PATIENCE, poll};

/// A running balancer.
pub(crate) struct Balancer {
    program: Arc<Guarded>,
    url: String,
}

impl Balancer {
    /// Starts a balancer in front of gateways at these addresses, and waits until it has reached one.
    pub(crate) fn to(gateways: &[String]) -> Self {
        let folder = guard::folder("b");
        let config = Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy/Caddyfile");
        let port = own_port();
        let mut command = Command::new(python(BALANCER).join("caddy"));
        command.args(["run", "--adapter", "caddyfile", "--config"]).arg(config).env_clear();
        command
            .env("HOME", &folder)
            .env("CADDY_ADMIN", format!("unix/{}", folder.join("admin").display()))
            .env("SITE", format!("http://:{port}"))
            .env("GATEWAYS", gateways.join(" "));
        let log = folder.join("log");
        let program = Guarded::start(&command, &log);
        poll("the balancer to listen", PATIENCE, || {
            std::net::TcpStream::connect(("127.0.0.1", port)).ok()
        });
        let url = format!("http://127.0.0.1:{port}");
        poll("a gateway behind the balancer", PATIENCE, || {
            (get(&format!("{url}/health"), &[]).status == 200).then_some(())
        });
        Self { program, url }
    }

    /// Returns its URL without a trailing slash.
    pub(crate) fn url(&self) -> &str {
        &self.url
    }
}

impl Drop for Balancer {
    fn drop(&mut self) {
        self.program.stop();
    }
}
