//! The examples of a policy: calls that it must allow, or must not.

use std::path::{Path, PathBuf};

use protocol::ToolId;
use serde::{Deserialize, Serialize};
use url::Url;

use super::{Command, CommandAccess, Judged, Operation, Policy};

/// A call that the policy must allow, or must not allow.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Example {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    read: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    write: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    command: Option<Vec<String>>,
    /// How far the command reaches.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    access: Option<CommandAccess>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    url: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    tool: Option<ToolId>,
}

impl Example {
    pub(super) fn check(&self) -> Result<(), String> {
        let Self { read, write, command, access, url, tool } = self;
        if access.is_some() && command.is_none() {
            return Err("`access` of an example is that of its `command`".to_owned());
        }
        let given =
            [read.is_some(), write.is_some(), command.is_some(), url.is_some(), tool.is_some()];
        if let Some(url) = url {
            let error = |error| format!("the example `{}`: {error}", protocol::escape_text(url));
            Url::parse(url).map_err(error)?;
        }
        match given.into_iter().map(usize::from).sum::<usize>() {
            1 if command.as_ref().is_none_or(|command| !command.is_empty()) => Ok(()),
            _ => Err(
                "an example has one of `read`, `write`, `command` (a program and its arguments), `url` and `tool`"
                    .to_owned(),
            ),
        }
    }

    /// Describes it in messages.
    fn describe(&self) -> String {
        let text = match self {
            Self { read: Some(path), .. } => format!("{{\"read\": {path:?}}}"),
            Self { write: Some(path), .. } => format!("{{\"write\": {path:?}}}"),
            Self { command: Some(argv), access, .. } => match access {
                None => format!("{{\"command\": {argv:?}}}"),
                Some(access) => {
                    format!("{{\"command\": {argv:?}, \"access\": \"{}\"}}", access.as_str())
                }
            },
            Self { url: Some(url), .. } => format!("{{\"url\": {url:?}}}"),
            Self { tool: Some(tool), .. } => format!("{{\"tool\": {:?}}}", tool.as_str()),
            _ => String::new(),
        };
        format!("`{}`", protocol::escape_text(&text))
    }
}

impl Policy {
    /// Tests the examples of the policy.
    pub(super) fn test_examples(
        &self,
        find: impl Fn(&str) -> Option<Command>,
    ) -> Result<(), String> {
        let Some(rules) = &self.rules else { return Ok(()) };
        for (examples, list, is_allowed) in
            [(&rules.matching, "match", true), (&rules.not_matching, "no_match", false)]
        {
            for example in examples {
                let why = match self.judge(example, &find) {
                    Judged::Denied(reason) if is_allowed => format!("is denied: {reason}"),
                    Judged::Within | Judged::Beyond(_) if !is_allowed => "is allowed".to_owned(),
                    _ => continue,
                };
                return Err(format!("the example {} in `{list}` {why}", example.describe()));
            }
        }
        Ok(())
    }

    /// Returns the number of examples.
    pub(super) fn examples(&self) -> usize {
        self.rules.as_ref().map_or(0, |rules| rules.matching.len() + rules.not_matching.len())
    }

    fn judge(&self, example: &Example, find: impl Fn(&str) -> Option<Command>) -> Judged {
        // A path is taken as it is: whether it is a link is not known before the call.
        let place = |path: &str, operation| {
            self.place(Path::new(path.strip_prefix("./").unwrap_or(path)), operation)
        };
        match example {
            Example { read: Some(path), .. } => place(path, Operation::Read),
            Example { write: Some(path), .. } => place(path, Operation::Change),
            Example { command: Some(argv), access, .. } => {
                let access = access.unwrap_or_default();
                let named = Command {
                    access,
                    argv: argv.clone(),
                    file: PathBuf::from(&argv[0]),
                    is_of_workspace: false,
                };
                let found =
                    find(&argv[0]).map(|found| Command { argv: argv.clone(), access, ..found });
                self.command(&found.unwrap_or(named))
            }
            Example { url: Some(url), .. } => match Url::parse(url) {
                Ok(url) => self.url(&url),
                // Not reached: it was parsed when the file was read.
                Err(error) => Judged::Denied(error.to_string()),
            },
            Example { tool: Some(tool), .. } => self.tool(tool),
            _ => Judged::Within,
        }
    }
}
