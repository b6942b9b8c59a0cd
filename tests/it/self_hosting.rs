//! `docs/self-hosting.md`: every command in it, in its order, by the built programs.

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use crate::support::binaries::built;
use crate::support::cli::text;
use crate::support::guard::{self, Guarded};
use crate::support::http::get;

/// How long a start may take; the first makes a database.
const START: Duration = Duration::from_secs(120);
/// The command that is left to run in a terminal of its own.
const GATEWAY: &str = "pml-server";

/// Somebody who follows the page.
struct Reader {
    home: PathBuf,
    path: String,
    address: String,
    gateway: Option<Arc<Guarded>>,
    /// All that was printed.
    seen: String,
}

impl Reader {
    fn new() -> Self {
        let home = guard::folder("self-hosting");
        let programs = built("pml").parent().unwrap().to_owned();
        let mut path = programs.display().to_string();
        for folder in ["PML_PG_BIN", "PATH"].iter().filter_map(std::env::var_os) {
            path = format!("{path}:{}", Path::new(&folder).display());
        }
        // Free now, and ours for as long as the gateways that take it one after the other.
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let address = format!("127.0.0.1:{port}");
        Self { home, path, address, gateway: None, seen: String::new() }
    }

    /// Prepares a block, with what the blocks before it have exported.
    fn shell(&self, block: &str) -> Command {
        let block = block.replace("127.0.0.1:3001", &self.address);
        let script = format!(
            "set -euo pipefail\n[ ! -f .exported ] || . ./.exported\n{block}\nexport -p > .exported"
        );
        let mut command = Command::new("bash");
        command.args(["-c", &script]).current_dir(&self.home).env_clear();
        command.env("HOME", &self.home).env("PATH", &self.path).env("PML_LISTEN", &self.address);
        command
    }

    fn run(&mut self, block: &str) {
        let output = self.shell(block).output().expect("bash runs");
        let said = text(&output.stdout) + &text(&output.stderr);
        assert!(output.status.success(), "{block}\n{}\n{said}", output.status);
        self.seen += &said;
    }

    /// Starts the gateway in the place of the one that ran.
    fn start(&mut self) {
        if let Some(before) = self.gateway.take() {
            assert_eq!(before.stop(), Some(0));
        }
        let log = self.home.join("log");
        // `sh` does not know the folder of the page.
        let enter = format!("cd {} && . ./.exported && exec {GATEWAY}", self.home.display());
        let mut command = Command::new("bash");
        command.args(["-c", &enter]);
        for (name, value) in self.shell("").get_envs() {
            command.env(name, value.unwrap_or_default());
        }
        let gateway = Guarded::start(&command, &log);
        let serves = gateway.line(START, |line| line == "Stop with Ctrl-C.");
        let log = std::fs::read_to_string(log).unwrap_or_default();
        assert!(serves.is_some(), "{}\n{log}", gateway.printed());
        self.gateway = Some(gateway);
    }
}

/// Returns the blocks of commands of a page.
fn blocks(page: &str) -> Vec<&str> {
    let after = page.split("```sh\n").skip(1);
    after.map(|rest| rest.split("```").next().unwrap().trim_end()).collect()
}

#[test]
fn every_command_of_the_page_works() {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/self-hosting.md");
    let page = std::fs::read_to_string(page).unwrap();
    let blocks = blocks(&page);
    assert!(blocks.len() >= 15 && blocks.iter().filter(|block| **block == GATEWAY).count() == 3);
    let mut reader = Reader::new();
    let mut leaves = None;
    for (index, block) in blocks.iter().enumerate() {
        if *block == GATEWAY {
            reader.start();
        } else {
            if block.contains("members remove") {
                leaves = Some(index);
                let own = format!("http://{}/api/v1/keys/self", reader.address);
                assert_eq!(status(&reader.home.join("ben.key"), &own), 200, "the old key goes on");
            }
            reader.run(block);
        }
    }
    for shown in ["HELLO", "AGAIN", "TAVILY_API_KEY", "tavily:*  1000/day", "\"servers\":["] {
        assert!(reader.seen.contains(shown), "no `{shown}` in\n{}", reader.seen);
    }
    // Nothing that should not be shown was.
    assert!(!reader.seen.contains("the-key-of-tavily"), "{}", reader.seen);
    assert!(leaves.is_some());
    let own = format!("http://{}/api/v1/keys/self", reader.address);
    assert_eq!(status(&reader.home.join("ben.key"), &own), 401, "who has left is out");
    assert_eq!(status(&reader.home.join("ana.key"), &own), 200);
}

fn status(key: &Path, url: &str) -> u16 {
    let key = std::fs::read_to_string(key).unwrap();
    get(url, &[("authorization", &format!("Bearer {}", key.trim()))]).status
}
