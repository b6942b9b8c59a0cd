//! `pml-server check`: reads all settings without starting anything.

mod certificate;
mod combinations;

use std::path::Path;

use execution::addresses::PrivateHosts;

use super::report::{Level, Report};
use super::serve::{gateway, spans};
use crate::config::{Inspect, Serve, SettingPlace, Settings, unknown_variables};
use crate::database::master_key::{self, ConfiguredKeys};
use crate::identity::metrics_token::MetricsToken;
use crate::{private_settings, telemetry};

/// Checks every setting: each value by itself, files, then combinations.
pub(super) fn check(settings: &Settings, inspect: &Inspect) -> Report {
    let mut report = Report::default();
    for mistake in &inspect.mistakes {
        let place = match mistake.place {
            SettingPlace::Flag => mistake.flag.clone(),
            SettingPlace::Variable => "variable".to_owned(),
        };
        report.invalid(&mistake.variable, place, mistake.expected.clone());
    }
    values(&mut report, settings, &inspect.serve);
    secrets(&mut report, settings, &inspect.serve);
    certificate::check(&mut report, &inspect.serve);
    let names = std::env::vars_os().map(|(name, _)| name);
    for (name, near) in unknown_variables(names, &private_settings::names()) {
        let remedy = match near {
            Some(near) => format!("did you mean {near}?"),
            None => "remove it; `pml-server serve --help` lists the variables".to_owned(),
        };
        report.warn(&name, "no such setting: it has no effect", remedy);
    }
    combinations::check(&mut report, settings, &inspect.serve);
    if report.count(Level::Failed) == 0 {
        let warnings = match report.count(Level::Warning) {
            0 => String::new(),
            1 => ", 1 warning".to_owned(),
            number => format!(", {number} warnings"),
        };
        report.ok("settings", format!("the gateway can start with them{warnings}"));
    }
    report
}

/// Checks the values that are parsed only when the gateway starts.
fn values(report: &mut Report, settings: &Settings, serve: &Serve) {
    if let Err(error) = telemetry::check(&settings.log) {
        report.fail(
            "PML_LOG",
            format!("{error:#}"),
            "write `info`, or for example `info,server=debug`",
        );
    }
    let urls =
        [("PML_DATABASE_URL", &settings.database_url), ("PML_MIGRATE_URL", &settings.migrate_url)];
    for (name, url) in urls {
        let parsed = url.as_ref().map(|url| registry::DatabaseUrl::parse(url.expose()));
        if let Some(Err(error)) = parsed {
            report.fail(
                name,
                error.to_string(),
                "write `postgres://ROLE:PASSWORD@HOST:PORT/DATABASE`",
            );
        }
    }
    if let Err(wrong) = PrivateHosts::new(&serve.upstream_private_hosts, gateway::PRIVATE) {
        report.fail(
            "PML_UPSTREAM_PRIVATE_HOSTS",
            wrong,
            "write hosts as in the URLs of their entries",
        );
    }
    for host in serve.allowed_hosts.iter().map(|host| host.trim()) {
        if host.is_empty() || host.contains(['/', '*', '@', ' ']) {
            let message = format!("`{host}` is not a host name");
            report.fail(
                "PML_ALLOWED_HOSTS",
                message,
                "write HOST or HOST:PORT, for example `gw.acme.example`",
            );
        }
    }
    for origin in serve.allowed_origins.iter().map(|origin| origin.trim()) {
        if !is_origin(origin) {
            let message = format!("`{origin}` is not an origin");
            report.fail(
                "PML_ALLOWED_ORIGINS",
                message,
                "write SCHEME://HOST[:PORT] without a path, for example `https://console.example`",
            );
        }
    }
    if let Err(error) = gateway::tokens(&serve.oauth) {
        report.fail(
            "issuer",
            format!("{error:#}"),
            "see docs/identity.md for the settings of an issuer",
        );
    }
    if let Err(error) = spans::settings() {
        report.fail(
            "spans",
            format!("{error:#}"),
            "see docs/operating.md for the supported variables",
        );
    }
}

/// Returns whether a text is what browsers send as `Origin`.
fn is_origin(text: &str) -> bool {
    let host = text.strip_prefix("https://").or_else(|| text.strip_prefix("http://"));
    host.is_some_and(|host| !host.is_empty() && !host.contains(['/', '*', '@', ' ', '?', '#']))
}

/// Checks the master keys and the token, and the permissions of their files.
fn secrets(report: &mut Report, settings: &Settings, serve: &Serve) {
    const REMEDY: &str = "the gateway refuses to start with it";
    for (variable, key) in ConfiguredKeys::each(settings) {
        if let Err(error) = key {
            report.fail(variable, format!("{error:#}"), REMEDY);
        }
    }
    if let Err(error) = MetricsToken::read(serve.metrics.metrics_token_file.as_deref()) {
        report.fail("PML_METRICS_TOKEN", format!("{error:#}"), REMEDY);
    }
    if settings.is_private() {
        if let Err(error) = master_key::check_own(settings) {
            report.fail("PML_DATA_DIR", format!("{error:#}"), REMEDY);
        }
        readable_by_others(report, &settings.data_dir().join(super::serve::KEY_FILE));
    }
}

/// Warns of a file with a key that others can read. A missing file is nothing to warn of.
fn readable_by_others(report: &mut Report, path: &Path) {
    use std::os::unix::fs::MetadataExt as _;
    let others = std::fs::metadata(path).is_ok_and(|metadata| metadata.mode() & 0o077 != 0);
    if others {
        report.warn(
            "PML_DATA_DIR",
            format!("others can read the API key in `{}`", path.display()),
            format!("run `chmod 600 {}`; rotate the key if they may have", path.display()),
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_origin_has_a_scheme_and_no_path() {
        for text in ["https://console.example", "http://a.example:8080"] {
            assert!(is_origin(text), "{text}");
        }
        for text in ["", "*", "console.example", "https://a.example/", "https://*.a.example"] {
            assert!(!is_origin(text), "{text}");
        }
    }
}
