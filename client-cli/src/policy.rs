//! `policy` of `.pml.json`: what tools may touch that a rule allows or that the user approves.
//!
//! Rules name tools; a policy is about what their calls do: paths, sizes, commands and counts. It only judges. Whoever
//! makes a call asks it before the user is asked, and again when the call is made.

mod check;
mod file;
pub(crate) mod glob;
mod usage;
mod web;

use std::path::Path;

use protocol::ToolId;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use url::Url;

pub(crate) use self::check::{Finding, findings, summary};
pub(crate) use self::file::PolicyFile;
use self::file::{Access, Rules};
use self::glob::PlacePattern;
pub(crate) use self::usage::PolicyOfRun;
pub(crate) use self::web::HostPattern;
pub(crate) use self::web::REDIRECTS;

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
    /// Whether the built-in policy applies as well, because the user has not trusted the file.
    is_untrusted: bool,
    /// The namespaces of [`INSPECTED`] that servers of the project replace. Their calls cannot be inspected.
    replaced: Vec<String>,
}

impl Policy {
    /// Creates the policy of a file. One that is not trusted only restricts further.
    pub(crate) fn new(file: Option<PolicyFile>, is_trusted: bool, replaced: Vec<String>) -> Self {
        Self { rules: file.map(PolicyFile::into_rules), is_untrusted: !is_trusted, replaced }
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

    /// Returns the section with all its defaults, for the record; `None` for the built-in policy.
    pub(crate) fn written(&self) -> Option<&Value> {
        self.rules.as_ref().map(|rules| &rules.written)
    }

    /// Returns whether it limits what only this machine can count.
    pub(crate) fn counts_calls(&self) -> bool {
        self.rules.as_ref().is_some_and(|rules| !rules.calls.is_empty() || rules.total_ms.is_some())
    }

    /// Returns the time limit of a run, in milliseconds.
    pub(crate) fn total_ms(&self) -> Option<u64> {
        self.rules.as_ref()?.total_ms
    }

    /// Returns whether calls of a tool can be inspected, so that a section of the policy is about them.
    pub(crate) fn inspects(&self, tool: &ToolId) -> bool {
        tool.is_plain()
            && INSPECTED.contains(&tool.namespace())
            && !self.replaced.iter().any(|name| name == tool.namespace())
    }

    /// Judges a tool, whatever its arguments are.
    pub(crate) fn tool(&self, tool: &ToolId) -> Judged {
        let Some(rules) = &self.rules else { return Judged::Within };
        let missing = |section: &str| Judged::Denied(format!("{} is missing", named(section)));
        if !self.inspects(tool) {
            return match rules.tools.iter().any(|pattern| pattern.grants(tool)) {
                true => Judged::Within,
                false => Judged::Denied(format!("{} does not list it", named("tools"))),
            };
        }
        let (reads, writes) = match (tool.namespace(), tool.action()) {
            ("shell", _) => {
                return match rules.shell {
                    Some(_) => Judged::Within,
                    None => missing("shell"),
                };
            }
            // What changes a repository is a command.
            ("git", action) if !GIT_READS.contains(&action) => {
                return match rules.shell {
                    Some(_) => Judged::Within,
                    None => missing("shell"),
                };
            }
            ("web", _) => {
                return match rules.web {
                    Some(_) => Judged::Within,
                    None => missing("web"),
                };
            }
            (_, "write_file" | "create_directory") => (false, true),
            // The result of a dry run of an edit shows content, and changes nothing.
            (_, "move_file") => (true, true),
            _ => (true, false),
        };
        if reads && rules.read.is_none() {
            return missing("filesystem.read");
        }
        if writes && rules.write.is_none() {
            return missing("filesystem.write");
        }
        Judged::Within
    }

    /// Judges an access to a place; `real` is its path in the workspace with all links resolved.
    pub(crate) fn place(&self, real: &Path, operation: Operation) -> Judged {
        let Some(rules) = &self.rules else { return built_in_place(real, operation) };
        let (read, write) = (("filesystem.read", &rules.read), ("filesystem.write", &rules.write));
        let sections: &[_] = match operation {
            Operation::List | Operation::Read => &[read],
            Operation::Change => &[write],
            // What is moved can be read at its new place.
            Operation::Move => &[read, write],
        };
        for (name, access) in sections {
            if let Err(reason) = allows(name, access.as_ref(), real) {
                return Judged::Denied(reason);
            }
        }
        match self.is_untrusted {
            true => built_in_place(real, operation),
            false => Judged::Within,
        }
    }

    /// Judges a command.
    pub(crate) fn command(&self, command: &Command) -> Judged {
        let built_in = || {
            Judged::Beyond(
                "no rule can allow a command unless `policy.shell.allow` names its program",
            )
        };
        let Some(rules) = &self.rules else { return built_in() };
        let Some(shell) = &rules.shell else {
            return Judged::Denied(format!("{} is missing", named("shell")));
        };
        if let Err(reason) = shell.allows(command) {
            return Judged::Denied(reason);
        }
        if self.is_untrusted { built_in() } else { Judged::Within }
    }

    /// Judges a web address, without looking it up.
    pub(crate) fn url(&self, url: &Url) -> Judged {
        let built_in = || {
            Judged::Beyond("no rule can allow a web address unless `policy.web.allow` has its host")
        };
        let Some(rules) = &self.rules else { return built_in() };
        let Some(web) = &rules.web else {
            return Judged::Denied(format!("{} is missing", named("web")));
        };
        if let Err(reason) = web.allows(url) {
            return Judged::Denied(reason);
        }
        if self.is_untrusted { built_in() } else { Judged::Within }
    }

    /// Returns whether the host of a web address may have a private address.
    pub(crate) fn allows_private(&self, url: &Url) -> bool {
        let web = self.rules.as_ref().and_then(|rules| rules.web.as_ref());
        !self.is_untrusted
            && web.is_some_and(|web| web.private.iter().any(|pattern| pattern.covers(url)))
    }

    /// Returns how many bytes the answer of a web address may have.
    pub(crate) fn web_bytes(&self) -> Option<u64> {
        self.rules.as_ref()?.web.as_ref()?.max_bytes
    }

    /// Returns the time limit for opening a web address, in milliseconds.
    pub(crate) fn web_ms(&self) -> Option<u64> {
        self.rules.as_ref()?.web.as_ref()?.timeout_ms
    }

    /// Returns how many redirects are followed.
    pub(crate) fn web_redirects(&self) -> Option<u32> {
        self.rules.as_ref()?.web.as_ref()?.max_redirects
    }

    /// Returns how many bytes one read may return.
    pub(crate) fn read_limit(&self) -> Option<u64> {
        self.rules.as_ref()?.read.as_ref()?.max_bytes
    }

    /// Returns how many bytes one file may have that is written.
    fn write_limit(&self) -> Option<u64> {
        self.rules.as_ref()?.write.as_ref()?.max_bytes
    }

    /// Returns the time limit of a command in milliseconds.
    pub(crate) fn command_ms(&self) -> Option<u64> {
        self.rules.as_ref()?.shell.as_ref()?.timeout_ms
    }

    /// Returns how many bytes of each output stream of a command are kept.
    pub(crate) fn command_output(&self) -> Option<u64> {
        self.rules.as_ref()?.shell.as_ref()?.max_output_bytes
    }

    /// Finds the programs that the policy names, and tests its examples. `find` resolves the name of a program on this
    /// machine to its file.
    ///
    /// # Errors
    /// Returns which example does not hold, or which program cannot be allowed.
    pub(crate) fn prepare(&mut self, find: impl Fn(&str) -> Option<Command>) -> Result<(), String> {
        let Some(rules) = &mut self.rules else { return Ok(()) };
        if let Some(shell) = &mut rules.shell {
            shell.find_programs(&find)?;
        }
        self.test_examples(find)
    }
}

/// Judges an access by the built-in policy: no rule can allow access to hidden files. Their names are no secret.
fn built_in_place(real: &Path, operation: Operation) -> Judged {
    match operation != Operation::List && is_hidden(real) {
        true => Judged::Beyond("it is hidden, and no `policy` allows that"),
        false => Judged::Within,
    }
}

/// Checks an access by one section.
fn allows(name: &str, access: Option<&Access>, real: &Path) -> Result<(), String> {
    let Some(access) = access else { return Err(format!("{} is missing", named(name))) };
    if !access.hidden && is_hidden(real) {
        return Err(format!("it is hidden, and {} is not set", named(&format!("{name}.hidden"))));
    }
    // A denied folder is denied with everything in it.
    let parents = real.ancestors().filter(|parent| parent.as_os_str() != "");
    let places: Vec<&Path> = if real.as_os_str() == "" { vec![real] } else { parents.collect() };
    let is_denied = |pattern: &&PlacePattern| places.iter().any(|place| pattern.covers(place));
    if let Some(pattern) = access.deny.iter().find(is_denied) {
        return Err(format!("{} has `{pattern}`", named(&format!("{name}.deny"))));
    }
    match access.allow.iter().any(|pattern| pattern.covers(real)) {
        true => Ok(()),
        false => Err(format!("{} has no pattern for it", named(&format!("{name}.allow")))),
    }
}

/// Returns whether a path has a part that begins with a dot.
fn is_hidden(real: &Path) -> bool {
    real.components().any(|part| part.as_os_str().as_encoded_bytes().starts_with(b"."))
}

/// Names a part of the policy in messages.
fn named(part: &str) -> String {
    format!("`policy.{part}` in `.pml.json`")
}

#[cfg(test)]
mod tests;
