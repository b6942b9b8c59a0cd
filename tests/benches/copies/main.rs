//! SE-14: counts the copies of a stored secret in the memory of the gateway's processes, before and after requests that
//! use it. It is a report, not a test: freed memory is not erased, so some copies remain until it is reused.

#![expect(clippy::unwrap_used, reason = "a bench without its servers has nothing to measure")]

#[path = "../support/spent.rs"]
mod spent;
#[path = "../support/harness.rs"]
mod support;

use std::collections::HashSet;
use std::fs::{self, File};
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use serde_json::json;

use spent::tree;
use support::http::{HttpMcp, send};
use support::mcp_client::Era;
use support::server::{Installation, Tenant};
use support::upstream::{Entry, Everything, host_of, scope_of};

/// The numbers of requests between two counts.
const FURTHER: [usize; 3] = [10, 100, 1_000];
const PIECE: usize = 1 << 20;

/// Counts how often a text is in the memory of a process, or returns `None` without permission. Read-only mappings of
/// files cannot contain the secret and are skipped. Shared mappings are recorded in `seen` and counted only once.
fn count_copies(pid: u32, text: &[u8], seen: &mut HashSet<String>) -> Option<usize> {
    let (Ok(maps), Ok(memory)) =
        (fs::read_to_string(format!("/proc/{pid}/maps")), File::open(format!("/proc/{pid}/mem")))
    else {
        // A process that has ended meanwhile has no copies.
        return (!Path::new(&format!("/proc/{pid}")).exists()).then_some(0);
    };
    let mut count = 0;
    for line in maps.lines() {
        let (range, rest) = line.split_once(' ')?;
        let is_shared = rest.as_bytes().get(3) == Some(&b's');
        if !rest.starts_with("rw") || (is_shared && !seen.insert(rest.to_owned())) {
            continue;
        }
        let (from, to) = range.split_once('-')?;
        let [from, to] = [from, to].map(|at| u64::from_str_radix(at, 16).unwrap_or(0));
        let mut at = from;
        while at < to {
            // The pieces overlap, to find a copy across their border.
            let length = (to - at).min((PIECE + text.len() - 1) as u64);
            let mut piece = vec![0; length as usize];
            if memory.read_exact_at(&mut piece, at).is_err() {
                break;
            }
            count += piece.windows(text.len()).filter(|w| w[0] == text[0] && *w == text).count();
            at += PIECE as u64;
        }
    }
    Some(count)
}

/// The secret, kept in two halves so that the bench itself does not contain it.
struct Canary([String; 2]);

impl Canary {
    fn new() -> Self {
        let mut random = [0; 32];
        ring::rand::SecureRandom::fill(&ring::rand::SystemRandom::new(), &mut random).unwrap();
        let text = data_encoding::HEXLOWER.encode(&random);
        Self([text[..32].to_owned(), text[32..].to_owned()])
    }

    fn whole(&self) -> String {
        self.0.concat()
    }
}

#[expect(clippy::print_stdout, reason = "a bench reports to its terminal")]
fn report(when: &str, gateway: u32, key: &Canary) {
    let key = key.whole();
    let others = tree(gateway).into_iter().filter(|pid| *pid != gateway);
    let mut seen = HashSet::new();
    let own = count_copies(gateway, key.as_bytes(), &mut seen);
    let others: Option<usize> =
        others.map(|pid| count_copies(pid, key.as_bytes(), &mut seen)).sum();
    let counts =
        [own, others].map(|count| count.map_or("no permission".to_owned(), |n| n.to_string()));
    println!("| {when} | {} | {} |", counts[0], counts[1]);
}

/// Stores the secret for one host, or deletes it.
fn put(tenant: &Tenant, key: Option<(&str, &str)>) -> u16 {
    let (method, query) = if key.is_none() { ("DELETE", "?for=me") } else { ("PUT", "") };
    let url = format!("{}/api/v1/secrets/COPIES_TOKEN{query}", tenant.url);
    let bearer = format!("Bearer {}", tenant.key);
    let headers = [("authorization", bearer.as_str()), ("content-type", "application/json")];
    let body = key.map(|(key, host)| {
        json!({ "value": key, "for": "me", "hosts": [host] }).to_string().into_bytes()
    });
    send(method, &url, &headers, body).status
}

/// Calls the tool of a server, which must succeed.
fn call(tenant: &Tenant, tool: &str, times: usize) {
    let client = HttpMcp::new(tenant, Era::Stateless);
    for _ in 0..times {
        let result = client.call(tool, json!({ "message": "hello" }));
        assert_eq!(result["content"][0]["text"], "hello", "{result}");
    }
}

#[expect(clippy::print_stdout, reason = "a bench reports to its terminal")]
fn main() {
    let key = Canary::new();
    // Positive control: the copy in this process must be found.
    let here = key.whole().into_boxed_str();
    let own = count_copies(std::process::id(), here.as_bytes(), &mut HashSet::new());
    assert!(own.is_some_and(|count| count >= 1), "the existing copy was not found: {own:?}");
    let upstream = Everything::start();
    let home = Installation::new();
    let server = home.start();
    let tenant = server.tenant_with_rights("execute,read,admin");
    let scope = scope_of(&tenant);
    let echo =
        json!({ "name": "echo", "description": "Echoes", "inputSchema": { "type": "object" } });
    for (namespace, variable) in [("keyed", Some("COPIES_TOKEN")), ("bare", None)] {
        let mut entry = Entry::http(&scope, namespace, &upstream.url);
        if let Some(variable) = variable {
            entry = entry.needs(variable);
        }
        entry.tools = vec![echo.clone()];
        entry.publish(&home);
    }
    let pid = server.pid().number;
    println!("### Copies of a stored key in memory\n");
    println!(
        "| when | in `pml-server` itself | in its other processes and its Postgres |\n|---|---:|---:|"
    );
    report("before it was stored", pid, &key);
    assert_eq!(put(&tenant, Some((&here, &host_of(&upstream.url)))), 201);
    report("stored", pid, &key);
    call(&tenant, "keyed:echo", 1);
    report("right after the first request with it", pid, &key);
    for count in FURTHER {
        call(&tenant, "keyed:echo", count);
        report(&format!("{count} further requests with it"), pid, &key);
    }
    call(&tenant, "bare:echo", FURTHER[1]);
    report(&format!("{} requests without it", FURTHER[1]), pid, &key);
    let deleted = put(&tenant, None);
    assert!((200..300).contains(&deleted), "{deleted}");
    report("right after it was deleted", pid, &key);
    call(&tenant, "bare:echo", FURTHER[2]);
    report(&format!("{} requests later", FURTHER[2]), pid, &key);
    println!();
}
