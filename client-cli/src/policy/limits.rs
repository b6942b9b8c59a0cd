//! The limits that policies set. The lowest one counts.

use super::file::{Access, Rules, Shell};
use super::web::{REDIRECTS, Web};
use super::{Policy, Source};

/// A limit of a policy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Limit {
    /// The number.
    pub(crate) value: u64,
    /// The part of the policy that sets it, and its file.
    pub(crate) named: String,
}

impl Policy {
    /// Returns whether it limits what only this machine can count.
    pub(crate) fn counts_calls(&self) -> bool {
        self.total_ms().is_some() || self.rules().any(|(rules, _)| !rules.calls.is_empty())
    }

    /// Returns the time limit of a run, in milliseconds.
    pub(crate) fn total_ms(&self) -> Option<u64> {
        self.rules().filter_map(|(rules, _)| rules.total_ms).min()
    }

    /// Returns how many bytes the answer of a web address may have.
    pub(crate) fn web_bytes(&self) -> Option<u64> {
        self.of_web(|web| web.max_bytes)
    }

    /// Returns the time limit for opening a web address, in milliseconds.
    pub(crate) fn web_ms(&self) -> Option<u64> {
        self.of_web(|web| web.timeout_ms)
    }

    /// Returns how many redirects are followed.
    pub(crate) fn web_redirects(&self) -> u32 {
        // A policy that says nothing has the default. Another one that allows more does not change that.
        let of_each = self.each().map(|policy| {
            let web = policy.rules.as_ref().and_then(|rules| rules.web.as_ref());
            web.and_then(|web| web.max_redirects).unwrap_or(REDIRECTS)
        });
        of_each.min().unwrap_or(REDIRECTS)
    }

    /// Returns how many bytes one read may return.
    pub(crate) fn read_limit(&self) -> Option<Limit> {
        self.of_files("filesystem.read.max_bytes", |rules| rules.read.as_ref()?.max_bytes)
    }

    /// Returns how many bytes one file may have that is written.
    pub(super) fn write_limit(&self) -> Option<Limit> {
        self.of_files("filesystem.write.max_bytes", |rules| rules.write.as_ref()?.max_bytes)
    }

    /// Returns how many bytes one run may write.
    pub(super) fn write_total_limit(&self) -> Option<Limit> {
        let total = |write: &Access| write.max_total_bytes;
        self.of_files("filesystem.write.max_total_bytes", |rules| total(rules.write.as_ref()?))
    }

    /// Returns the time limit of a command in milliseconds.
    pub(crate) fn command_ms(&self) -> Option<u64> {
        self.of_shell(|shell| shell.timeout_ms)
    }

    /// Returns how many bytes of each output stream of a command are kept.
    pub(crate) fn command_output(&self) -> Option<u64> {
        self.of_shell(|shell| shell.max_output_bytes)
    }

    /// Returns the rules of each policy, with their source.
    pub(super) fn rules(&self) -> impl Iterator<Item = (&Rules, &Source)> {
        self.each().filter_map(|policy| Some((policy.rules.as_ref()?, &policy.source)))
    }

    fn of_web(&self, limit: impl Fn(&Web) -> Option<u64>) -> Option<u64> {
        self.rules().filter_map(|(rules, _)| limit(rules.web.as_ref()?)).min()
    }

    fn of_shell(&self, limit: impl Fn(&Shell) -> Option<u64>) -> Option<u64> {
        self.rules().filter_map(|(rules, _)| limit(rules.shell.as_ref()?)).min()
    }

    /// Returns a limit with its name.
    fn of_files(&self, part: &str, limit: impl Fn(&Rules) -> Option<u64>) -> Option<Limit> {
        let limits = self.rules().filter_map(|(rules, source)| Some((limit(rules)?, source)));
        // The first of equal ones: that of the project.
        let (value, source) = limits.min_by_key(|(value, _)| *value)?;
        Some(Limit { value, named: source.named(part) })
    }
}
