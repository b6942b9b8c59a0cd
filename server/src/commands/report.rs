//! What `check` and `doctor` have found: one line for each, and how to mend it.

use std::fmt::Write as _;
use std::process::ExitCode;

use protocol::redaction::keys_in_use;
use serde::Serialize;

/// How serious a finding is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Level {
    /// As it should be.
    Ok,
    /// It works, but something is dangerous, missing or without effect.
    Warning,
    /// The gateway does not start, or does not work.
    Failed,
}

/// One finding.
#[derive(Debug, Serialize)]
pub(super) struct Finding {
    level: Level,
    /// The setting, or the part of the machine.
    subject: String,
    /// Where the value of a setting is from: `variable`, or the flag or file.
    #[serde(skip_serializing_if = "Option::is_none")]
    place: Option<String>,
    message: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    remedy: Option<String>,
}

/// All findings, in the order in which they were made.
#[derive(Debug, Default)]
pub(super) struct Report(Vec<Finding>);

impl Report {
    /// Adds what is as it should be.
    pub(super) fn ok(&mut self, subject: &str, message: impl Into<String>) {
        self.add(Level::Ok, subject, None, message.into(), None);
    }

    /// Adds what works, but should be changed.
    pub(super) fn warn(
        &mut self,
        subject: &str,
        message: impl Into<String>,
        remedy: impl Into<String>,
    ) {
        self.add(Level::Warning, subject, None, message.into(), Some(remedy.into()));
    }

    /// Adds what does not work.
    pub(super) fn fail(
        &mut self,
        subject: &str,
        message: impl Into<String>,
        remedy: impl Into<String>,
    ) {
        self.add(Level::Failed, subject, None, message.into(), Some(remedy.into()));
    }

    /// Adds an invalid value with its place.
    pub(super) fn invalid(&mut self, subject: &str, place: String, message: String) {
        self.add(Level::Failed, subject, Some(place), message, None);
    }

    fn add(
        &mut self,
        level: Level,
        subject: &str,
        place: Option<String>,
        message: String,
        remedy: Option<String>,
    ) {
        self.0.push(Finding { level, subject: subject.to_owned(), place, message, remedy });
    }

    /// Returns the number of findings of a level.
    pub(super) fn count(&self, level: Level) -> usize {
        self.0.iter().filter(|finding| finding.level == level).count()
    }

    /// Returns the exit code: failure if anything has failed.
    pub(super) fn exit_code(&self) -> ExitCode {
        if self.count(Level::Failed) == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
    }

    /// Returns the report as text or JSON. No secret in use appears in it.
    pub(super) fn render(&self, as_json: bool) -> anyhow::Result<String> {
        let text = if as_json {
            let ok = self.count(Level::Failed) == 0;
            let report = serde_json::json!({ "ok": ok, "findings": self.0 });
            serde_json::to_string_pretty(&report)? + "\n"
        } else {
            self.lines()
        };
        Ok(keys_in_use().text(&text).into_owned())
    }

    fn lines(&self) -> String {
        let mut out = String::new();
        for finding in &self.0 {
            let level = match finding.level {
                Level::Ok => "ok",
                Level::Warning => "warning",
                Level::Failed => "failed",
            };
            let place = finding.place.as_ref().map(|place| format!(" ({place})"));
            // Writing to a text cannot fail.
            let _ = writeln!(
                out,
                "{level:8} {}{}: {}",
                finding.subject,
                place.unwrap_or_default(),
                finding.message
            );
            if let Some(remedy) = &finding.remedy {
                let _ = writeln!(out, "         → {remedy}");
            }
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_finding_has_a_line_and_only_failures_fail() {
        let mut report = Report::default();
        report.ok("database", "Postgres 15.18");
        report.warn("disk", "little", "delete something");
        assert_eq!(report.exit_code(), ExitCode::SUCCESS);
        report.invalid("PML_LISTEN", "--listen".into(), "write ADDRESS:PORT".into());
        assert_eq!(report.exit_code(), ExitCode::FAILURE);
        assert_eq!(
            report.render(false).unwrap(),
            "ok       database: Postgres 15.18\n\
             warning  disk: little\n         → delete something\n\
             failed   PML_LISTEN (--listen): write ADDRESS:PORT\n"
        );
        let json: serde_json::Value = serde_json::from_str(&report.render(true).unwrap()).unwrap();
        assert_eq!(json["ok"], false);
        assert_eq!(json["findings"][2]["place"], "--listen");
        assert_eq!(json["findings"][0]["level"], "ok");
    }
}
