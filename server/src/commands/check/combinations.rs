//! Settings that are valid, but dangerous or without effect together.

use std::net::IpAddr;

use ipnet::IpNet;
use registry::DatabaseUrl;

use super::super::report::Report;
use crate::config::{RateLimit, ReleaseSettings, Serve, Settings, Switch};
use crate::database::master_key::ConfiguredKeys;

/// The maximum number of concurrent programs of all tenants.
const ALL_PROGRAMS: u16 = 64;

/// The longest path of the folder of `stdio` servers, in bytes: the path of a socket in it has at most 107.
const STDIO_DIR_LIMIT: usize = 70;

/// Adds a warning for each of them.
pub(super) fn check(report: &mut Report, settings: &Settings, serve: &Serve) {
    address(report, serve);
    rates(report, serve);
    database(report, settings);
    releases(report, &serve.releases);
    if serve.tenant_programs > ALL_PROGRAMS {
        report.warn(
            "PML_TENANT_PROGRAMS",
            format!("all tenants together run at most {ALL_PROGRAMS} programs"),
            format!("set at most {ALL_PROGRAMS}"),
        );
    }
    stdio(report, settings, serve);
    let connections = &serve.connections;
    if let (Some(all), Some(one)) = (connections.connections, connections.connections_per_address)
        && one > all
    {
        report.warn(
            "PML_CONNECTIONS_PER_ADDRESS",
            format!("it is more than PML_CONNECTIONS, {all}: one address can take all connections"),
            "set less than PML_CONNECTIONS",
        );
    }
}

fn stdio(report: &mut Report, settings: &Settings, serve: &Serve) {
    let (all, one) = (serve.stdio.processes, serve.stdio.tenant_processes);
    if all > 0 && one > all {
        report.warn(
            "PML_STDIO_TENANT_PROCESSES",
            format!("it is more than PML_STDIO_PROCESSES, {all}: one project can take all places"),
            "set less than PML_STDIO_PROCESSES",
        );
    }
    let folder = settings.stdio_dir();
    if folder.as_os_str().len() > STDIO_DIR_LIMIT {
        report.warn(
            "PML_STDIO_DIR",
            format!("`{}` is too long for the sockets of `stdio` servers", folder.display()),
            format!("set a path of at most {STDIO_DIR_LIMIT} bytes"),
        );
    }
}

/// Who can reach the gateway.
fn address(report: &mut Report, serve: &Serve) {
    let is_public = !serve.listen.ip().is_loopback();
    let has_names = serve.hosts().next().is_some();
    if is_public && !serve.tls.is_set() {
        report.warn(
            "PML_LISTEN",
            format!("{} is reachable from other machines, over plain HTTP", serve.listen),
            "set PML_TLS_CERT_FILE and PML_TLS_KEY_FILE, or let only a proxy with TLS reach the port",
        );
    }
    if is_public && !has_names {
        report.warn(
            "PML_ALLOWED_HOSTS",
            "it is not set: `/mcp` answers 403 to clients that use another name than localhost",
            "set PML_PUBLIC_URL or PML_ALLOWED_HOSTS to the gateway's name",
        );
    }
    if serve.anonymous_read == Switch::On && (is_public || has_names) {
        report.warn(
            "PML_ANONYMOUS_READ",
            "everyone who reaches the gateway can read public entries without an API key",
            "set PML_ANONYMOUS_READ=off, unless that is intended",
        );
    }
    if let Some(metrics) = serve.metrics.metrics_listen.filter(|it| !it.ip().is_loopback()) {
        report.warn(
            "PML_METRICS_LISTEN",
            format!("{metrics} serves the gateway's figures without a credential"),
            "let only your monitoring reach it, or use PML_METRICS_TOKEN instead",
        );
    }
}

fn rates(report: &mut Report, serve: &Serve) {
    for network in &serve.rates.trusted_proxies {
        if is_too_wide(network) {
            report.warn(
                "PML_TRUSTED_PROXIES",
                format!(
                    "{network} trusts strangers: they choose the address that limits and logs see"
                ),
                "list only the addresses of your proxies",
            );
        }
    }
    let limits = [
        ("PML_RATE_PER_ADDRESS", serve.rates.rate_per_address),
        ("PML_RATE_PER_KEY", serve.rates.rate_per_key),
        ("PML_RATE_PER_ORG", serve.rates.rate_per_org),
    ];
    for (name, limit) in limits {
        if limit == RateLimit::Off {
            report.warn(name, "requests are not limited", "set a rate, for example `240000/min`");
        }
    }
}

/// Returns whether a network contains more than somebody's own machines.
fn is_too_wide(network: &IpNet) -> bool {
    let is_private = match network.network() {
        IpAddr::V4(address) => address.is_private() || address.is_loopback(),
        IpAddr::V6(address) => address.is_unique_local() || address.is_loopback(),
    };
    // The prefix of each private network is at least this long.
    let (private, public) = match network {
        IpNet::V4(_) => (8, 16),
        IpNet::V6(_) => (7, 32),
    };
    network.prefix_len() < if is_private { private } else { public }
}

/// The install script needs both settings.
fn releases(report: &mut Report, releases: &ReleaseSettings) {
    let (set, missing) = match (releases.url(), releases.keys()) {
        (Some(_), None) => ("PML_RELEASES_URL", "PML_RELEASES_KEYS"),
        (None, Some(_)) => ("PML_RELEASES_KEYS", "PML_RELEASES_URL"),
        _ => return,
    };
    report.warn(
        set,
        format!("it has no effect without {missing}: `GET /install.sh` answers 404"),
        format!("set {missing}, or remove {set}"),
    );
}

fn database(report: &mut Report, settings: &Settings) {
    let Some(url) = &settings.database_url else {
        if settings.migrate_url.is_some() {
            report.fail(
                "PML_DATABASE_URL",
                "it is not set, but PML_MIGRATE_URL is: the gateway serves as `pml_app`, not as the owner",
                "set PML_DATABASE_URL to the same database with the role `pml_app`",
            );
        }
        return;
    };
    if given_as_flag("--database-url") || given_as_flag("--migrate-url") {
        report.warn(
            "PML_DATABASE_URL",
            "everyone on this machine can see a URL that is passed as a flag, with its password",
            "use the variable",
        );
    }
    if settings.pg_bin.is_some() {
        report.warn(
            "PML_PG_BIN",
            "the gateway starts no Postgres with PML_DATABASE_URL; only `backup` and `restore` use it",
            "remove it, unless these commands need it",
        );
    }
    let has_key = ConfiguredKeys::each(settings).iter().any(|(_, key)| !matches!(key, Ok(None)));
    if !has_key {
        report.warn(
            "PML_MASTER_KEY",
            "it is not set: with your own Postgres, no secrets can be stored or read",
            "set PML_MASTER_KEY_FILE to a file with the output of `openssl rand -base64 32`",
        );
    }
    if let Ok(url) = DatabaseUrl::parse(url.expose())
        && !url.is_local
        && !url.verifies_server
    {
        report.warn(
            "PML_DATABASE_URL",
            "the connection may be unencrypted, or to a server that is not yours",
            "add `?sslmode=verify-full`",
        );
    }
}

/// Returns whether a flag is on the command line of this process.
fn given_as_flag(flag: &str) -> bool {
    std::env::args_os().any(|argument| {
        let argument = argument.to_string_lossy();
        argument == flag || argument.strip_prefix(flag).is_some_and(|rest| rest.starts_with('='))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_networks_of_strangers_are_too_wide() {
        for network in ["0.0.0.0/0", "::/0", "8.0.0.0/8", "2000::/3"] {
            assert!(is_too_wide(&network.parse().unwrap()), "{network}");
        }
        for network in ["10.0.0.0/8", "127.0.0.1/32", "172.16.0.0/12", "203.0.113.0/24", "fd00::/8"]
        {
            assert!(!is_too_wide(&network.parse().unwrap()), "{network}");
        }
    }
}
