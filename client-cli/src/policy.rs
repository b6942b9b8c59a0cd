//! `policy` of `.pml.json`: what tools may touch that a rule allows or that the user approves.
//!
//! Rules name tools; a policy is about what their calls do: paths, sizes, commands and counts. It only judges. Whoever
//! makes a call asks it before the user is asked, and again when the call is made.
//!
//! A command can be given a second policy, which applies as well: each of the two judges, and the stricter verdict and the
//! lower limit count.

mod check;
mod example;
mod file;
mod given;
pub(crate) mod glob;
mod judge;
mod limits;
mod source;
mod usage;
mod web;

use std::path::Path;
use std::sync::Arc;

use protocol::ToolId;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use url::Url;

pub(crate) use self::check::{Finding, findings, summary};
pub(crate) use self::file::PolicyFile;
use self::file::Rules;
pub(crate) use self::given::{GivenPolicy, hash_of};
use self::glob::PlacePattern;
pub(crate) use self::limits::Limit;
use self::source::Source;
pub(crate) use self::usage::PolicyOfRun;

/// The namespaces whose calls a policy can inspect. All other tools are listed by name in `tools`.
pub(crate) const INSPECTED: [&str; 4] = ["filesystem", "shell", "git", "web"];

/// The tools of `git` that only read, and show only what `filesystem.read` allows.
pub(crate) const GIT_READS: [&str; 7] = [
    "git_status",
    "git_diff_unstaged",
    "git_diff_staged",
    "git_diff",
    "git_log",
    "git_show",
    "git_branch",
];

/// The access to a place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Operation {
    /// Its metadata is read, or the names in it.
    List,
    /// Its content is read.
    Read,
    /// It is written or created.
    Change,
    /// It is moved away, or something is moved there, with everything beneath it.
    Move,
}

/// How far a command reaches.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum CommandAccess {
    /// The files of the workspace, and what its tools are made of.
    #[default]
    Workspace,
    /// The network as well.
    Network,
    /// Everything that the user can reach.
    Unconfined,
}

impl CommandAccess {
    /// Returns its name in arguments of calls and examples.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Workspace => "workspace",
            Self::Network => "network",
            Self::Unconfined => "unconfined",
        }
    }
}

/// A command, as the policy judges it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Command {
    /// The name by which the call has the program, and the arguments.
    pub(crate) argv: Vec<String>,
    /// The file that would run.
    pub(crate) file: std::path::PathBuf,
    /// Whether that file is in the workspace.
    pub(crate) is_of_workspace: bool,
    /// How far it would reach.
    pub(crate) access: CommandAccess,
}

/// What a policy says about a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Judged {
    /// The rules decide.
    Within,
    /// No rule can allow it: a person is asked. The reason is the rest of a sentence.
    Beyond(&'static str),
    /// It is refused, whatever rules and people say.
    Denied(String),
}

/// The policy of a project.
#[derive(Debug, Clone, Default)]
pub(crate) struct Policy {
    /// The section of the file; `None` for the built-in policy.
    rules: Option<Rules>,
    /// Where they are written.
    source: Source,
    /// Whether the built-in policy applies as well, because the user has not trusted the file.
    is_untrusted: bool,
    /// The namespaces of [`INSPECTED`] that servers of the project replace. Their calls cannot be inspected.
    replaced: Vec<String>,
    /// The policy that applies as well.
    given: Option<Arc<Given>>,
}

/// A policy that was given to a command, in force.
#[derive(Debug)]
struct Given {
    policy: Policy,
    /// As it was read, for the record.
    file: GivenPolicy,
}

impl Policy {
    /// Creates the policy of a file. One that is not trusted only restricts further.
    pub(crate) fn new(file: Option<PolicyFile>, is_trusted: bool, replaced: Vec<String>) -> Self {
        Self {
            rules: file.map(PolicyFile::into_rules),
            source: Source::default(),
            is_untrusted: !is_trusted,
            replaced,
            given: None,
        }
    }

    /// Adds a policy that applies as well. `prepare` prepares it.
    ///
    /// # Errors
    /// Returns why it cannot be prepared.
    pub(crate) fn restrict<E>(
        &mut self,
        file: &GivenPolicy,
        prepare: impl FnOnce(&mut Self) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut policy = file.alone(self.replaced.clone());
        prepare(&mut policy)?;
        self.given = Some(Arc::new(Given { policy, file: file.clone() }));
        Ok(())
    }

    /// Returns the namespaces whose calls cannot be inspected, because servers of the project replace them.
    pub(crate) fn replaced(&self) -> &[String] {
        &self.replaced
    }

    /// Returns the policy that the command was given.
    pub(crate) fn given(&self) -> Option<&GivenPolicy> {
        self.given.as_ref().map(|given| &given.file)
    }

    /// Returns each policy that applies.
    fn each(&self) -> impl Iterator<Item = &Self> {
        std::iter::once(self).chain(self.given.as_ref().map(|given| &given.policy))
    }

    /// Returns the strictest verdict. Of several denials, that of the project's policy is told.
    fn strictest(&self, judge: impl Fn(&Self) -> Judged) -> Judged {
        let mut strictest = Judged::Within;
        for judged in self.each().map(judge) {
            match judged {
                Judged::Denied(_) => return judged,
                Judged::Beyond(_) if strictest == Judged::Within => strictest = judged,
                Judged::Within | Judged::Beyond(_) => {}
            }
        }
        strictest
    }

    /// Returns whether the user has not trusted its file.
    pub(crate) fn is_untrusted(&self) -> bool {
        self.is_untrusted
    }

    /// Returns its patterns for places outside the project's folder.
    pub(crate) fn absolute_places(&self) -> impl Iterator<Item = &str> {
        let accesses = self.rules.iter().flat_map(|rules| [&rules.read, &rules.write]);
        let patterns =
            accesses.flatten().flat_map(|access| access.allow.iter().chain(&access.deny));
        patterns.map(PlacePattern::as_str).filter(|pattern| pattern.starts_with('/'))
    }

    /// Returns whether the file has a policy.
    pub(crate) fn is_of_file(&self) -> bool {
        self.rules.is_some()
    }

    /// Returns whether any policy applies other than the built-in one.
    pub(crate) fn restricts(&self) -> bool {
        self.each().any(Self::is_of_file)
    }

    /// Returns the section with all its defaults, for the record; `None` for the built-in policy.
    pub(crate) fn written(&self) -> Option<&Value> {
        self.rules.as_ref().map(|rules| &rules.written)
    }

    /// Returns whether calls of a tool can be inspected, so that a section of the policy is about them.
    pub(crate) fn inspects(&self, tool: &ToolId) -> bool {
        tool.is_plain()
            && INSPECTED.contains(&tool.namespace())
            && !self.replaced.iter().any(|name| name == tool.namespace())
    }

    /// Judges a tool, whatever its arguments are.
    pub(crate) fn tool(&self, tool: &ToolId) -> Judged {
        self.strictest(|policy| policy.judge_tool(tool))
    }

    /// Judges an access to a place; `real` is its path in the workspace with all links resolved.
    pub(crate) fn place(&self, real: &Path, operation: Operation) -> Judged {
        self.strictest(|policy| policy.judge_place(real, operation))
    }

    /// Judges a command.
    pub(crate) fn command(&self, command: &Command) -> Judged {
        self.strictest(|policy| policy.judge_command(command))
    }

    /// Judges a web address, without looking it up.
    pub(crate) fn url(&self, url: &Url) -> Judged {
        self.strictest(|policy| policy.judge_url(url))
    }

    /// Returns whether the host of a web address may have a private address.
    pub(crate) fn allows_private(&self, url: &Url) -> bool {
        self.each().all(|policy| policy.lists_private(url))
    }

    /// Names the list in which the host of a web address is missing, so that it may not have a private address.
    pub(crate) fn private_list(&self, url: &Url) -> String {
        let refusing = self.each().find(|policy| !policy.lists_private(url));
        refusing.unwrap_or(self).source.named("web.private")
    }

    /// Finds the programs that the policy names, and tests its examples. `find` resolves the name of a program on this
    /// machine to its file.
    ///
    /// # Errors
    /// Returns which example does not hold, or which program cannot be allowed.
    pub(crate) fn prepare(&mut self, find: impl Fn(&str) -> Option<Command>) -> Result<(), String> {
        let Some(rules) = &mut self.rules else { return Ok(()) };
        let found = match &mut rules.shell {
            Some(shell) => shell.find_programs(&find),
            None => Ok(()),
        };
        found
            .and_then(|()| self.test_examples(find))
            .map_err(|error| format!("{}{error}", self.source.opening()))
    }
}

#[cfg(test)]
mod tests;
