//! What one policy says about a call, as if there were no other.

use std::path::Path;

use protocol::ToolId;
use url::Url;

use super::file::Access;
use super::glob::PlacePattern;
use super::source::Source;
use super::{Command, GIT_READS, Judged, Operation, Policy};

impl Policy {
    pub(super) fn judge_tool(&self, tool: &ToolId) -> Judged {
        let Some(rules) = &self.rules else { return Judged::Within };
        let missing = |section: &str| self.missing(section);
        if !self.inspects(tool) {
            return match rules.tools.iter().any(|pattern| pattern.grants(tool)) {
                true => Judged::Within,
                false => Judged::Denied(format!("{} does not list it", self.source.named("tools"))),
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

    pub(super) fn judge_place(&self, real: &Path, operation: Operation) -> Judged {
        let Some(rules) = &self.rules else { return built_in_place(real, operation) };
        let (read, write) = (("filesystem.read", &rules.read), ("filesystem.write", &rules.write));
        let sections: &[_] = match operation {
            Operation::List | Operation::Read => &[read],
            Operation::Change => &[write],
            // What is moved can be read at its new place.
            Operation::Move => &[read, write],
        };
        for (name, access) in sections {
            if let Err(reason) = allows(&self.source, name, access.as_ref(), real) {
                return Judged::Denied(reason);
            }
        }
        match self.is_untrusted {
            true => built_in_place(real, operation),
            false => Judged::Within,
        }
    }

    pub(super) fn judge_command(&self, command: &Command) -> Judged {
        let built_in = || {
            Judged::Beyond(
                "no rule can allow a command unless `policy.shell.allow` names its program",
            )
        };
        let Some(rules) = &self.rules else { return built_in() };
        let Some(shell) = &rules.shell else { return self.missing("shell") };
        if let Err(reason) = shell.allows(&self.source, command) {
            return Judged::Denied(reason);
        }
        if self.is_untrusted { built_in() } else { Judged::Within }
    }

    pub(super) fn judge_url(&self, url: &Url) -> Judged {
        let built_in = || {
            Judged::Beyond("no rule can allow a web address unless `policy.web.allow` has its host")
        };
        let Some(rules) = &self.rules else { return built_in() };
        let Some(web) = &rules.web else { return self.missing("web") };
        if let Err(reason) = web.allows(&self.source, url) {
            return Judged::Denied(reason);
        }
        if self.is_untrusted { built_in() } else { Judged::Within }
    }

    /// Returns whether the host of a web address is listed as one with a private address.
    pub(super) fn lists_private(&self, url: &Url) -> bool {
        let web = self.rules.as_ref().and_then(|rules| rules.web.as_ref());
        !self.is_untrusted
            && web.is_some_and(|web| web.private.iter().any(|pattern| pattern.covers(url)))
    }

    fn missing(&self, section: &str) -> Judged {
        Judged::Denied(format!("{} is missing", self.source.named(section)))
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
fn allows(source: &Source, name: &str, access: Option<&Access>, real: &Path) -> Result<(), String> {
    let named = |part: &str| source.named(&format!("{name}{part}"));
    let Some(access) = access else { return Err(format!("{} is missing", named(""))) };
    if !access.hidden && is_hidden(real) {
        return Err(format!("it is hidden, and {} is not set", named(".hidden")));
    }
    // A denied folder is denied with everything in it.
    let parents = real.ancestors().filter(|parent| parent.as_os_str() != "");
    let places: Vec<&Path> = if real.as_os_str() == "" { vec![real] } else { parents.collect() };
    let is_denied = |pattern: &&PlacePattern| places.iter().any(|place| pattern.covers(place));
    if let Some(pattern) = access.deny.iter().find(is_denied) {
        return Err(format!("{} has `{pattern}`", named(".deny")));
    }
    match access.allow.iter().any(|pattern| pattern.covers(real)) {
        true => Ok(()),
        false => Err(format!("{} has no pattern for it", named(".allow"))),
    }
}

/// Returns whether a path has a part that begins with a dot.
fn is_hidden(real: &Path) -> bool {
    real.components().any(|part| part.as_os_str().as_encoded_bytes().starts_with(b"."))
}
