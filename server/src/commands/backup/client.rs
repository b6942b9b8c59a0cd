//! Runs programs of Postgres on a database.

use std::process::Command;

use anyhow::{Context as _, bail};
use percent_encoding::percent_decode_str;
use tokio::process::Child;

use crate::database::programs::Programs;

/// The number of bytes of an error that are shown.
const SHOWN: usize = 2_000;

/// How a program of Postgres connects. The password is not among its arguments, which every user of the machine sees.
pub(in crate::commands) struct Connection {
    url: String,
    password: Option<String>,
    /// Whether the settings of the environment apply, as they do to the gateway's own connections.
    uses_environment: bool,
}

impl Connection {
    /// Translates a database URL for `libpq`.
    ///
    /// # Errors
    /// Returns an error without the URL if it is invalid.
    pub(in crate::commands) fn new(url: &str, is_embedded: bool) -> anyhow::Result<Self> {
        let mut url: reqwest::Url = url.parse().context("the database URL is invalid")?;
        let decoded = |text: &str| percent_decode_str(text).decode_utf8_lossy().into_owned();
        let mut password = url.password().map(decoded);
        let mut pairs: Vec<(String, String)> = Vec::new();
        for (name, value) in url.query_pairs() {
            // The gateway's driver knows further names for some parameters.
            let name = match name.as_ref() {
                "password" => {
                    password = Some(value.into_owned());
                    continue;
                }
                "statement-cache-capacity" => continue,
                "ssl-mode" => "sslmode",
                "ssl-ca" | "ssl-root-cert" => "sslrootcert",
                "ssl-cert" => "sslcert",
                "ssl-key" => "sslkey",
                other => other,
            };
            pairs.push((name.to_owned(), value.clone().into_owned()));
        }
        // It cannot fail for a URL with a host, and without one, there is no password.
        let _ = url.set_password(None);
        url.set_query(None);
        let mut text = url.to_string();
        for (index, (name, value)) in pairs.iter().enumerate() {
            text.push(if index == 0 { '?' } else { '&' });
            // `libpq` decodes `%20`, but not `+`.
            text += &format!("{}={}", encoded(name), encoded(value));
        }
        Ok(Self { url: text, password, uses_environment: !is_embedded })
    }

    /// Returns a command that runs a program on the database.
    pub(in crate::commands) fn command(&self, programs: &Programs, program: &str) -> Command {
        let mut command = programs.command(program);
        if self.uses_environment {
            let inherited = std::env::vars_os().filter(|(name, _)| {
                name.to_str().is_some_and(|name| name == "HOME" || name.starts_with("PG"))
            });
            command.envs(inherited);
        }
        if let Some(password) = &self.password {
            command.env("PGPASSWORD", password);
        }
        command.arg(format!("--dbname={}", self.url));
        command
    }
}

fn encoded(text: &str) -> String {
    percent_encoding::utf8_percent_encode(text, percent_encoding::NON_ALPHANUMERIC).to_string()
}

/// Waits for a program and reads its errors; its output and input are handled elsewhere.
///
/// # Errors
/// Returns an error with the end of what it has printed, if it fails.
pub(in crate::commands) async fn outcome(child: Child, program: &str) -> anyhow::Result<()> {
    let output = child.wait_with_output().await;
    let output = output.with_context(|| format!("could not run `{program}`"))?;
    if output.status.success() {
        return Ok(());
    }
    let text = String::from_utf8_lossy(&output.stderr);
    let start = text.len().saturating_sub(SHOWN);
    let start = (start..text.len()).find(|at| text.is_char_boundary(*at)).unwrap_or_default();
    bail!(
        "`{program}` failed ({}): {}",
        output.status,
        text.get(start..).unwrap_or_default().trim()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_password_is_not_an_argument() {
        let programs = Programs { dir: "/bin".into(), major: 15 };
        for (url, shown, password) in [
            (
                "postgres://pml_owner:c%40nary@db.example:5433/pml?ssl-mode=verify-full&statement-cache-capacity=1",
                "--dbname=postgres://pml_owner@db.example:5433/pml?sslmode=verify%2Dfull",
                Some("c@nary"),
            ),
            (
                "postgres://pml@localhost:5432/pml?host=/a%20b/c&password=canary",
                "--dbname=postgres://pml@localhost:5432/pml?host=%2Fa%20b%2Fc",
                Some("canary"),
            ),
            ("postgres://pml@localhost/pml", "--dbname=postgres://pml@localhost/pml", None),
        ] {
            let command = Connection::new(url, true).unwrap().command(&programs, "pg_dump");
            assert_eq!(command.get_args().collect::<Vec<_>>(), [shown]);
            let given = command.get_envs().find(|(name, _)| *name == "PGPASSWORD");
            assert_eq!(given.and_then(|(_, value)| value?.to_str()), password);
        }
        let refused = Connection::new("canary", true).err().unwrap();
        assert!(!format!("{refused:#}").contains("canary"));
    }
}
