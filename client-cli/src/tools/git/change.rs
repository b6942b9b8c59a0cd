//! The tools that change a repository. Each is one command of Git.

use serde::Deserialize;
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use super::{Repository, check_name, invalid, name};
use crate::policy::{CommandAccess, PolicyOfRun};
use crate::tools::command::CommandReach;
use crate::tools::{NativeError, arguments};

#[derive(Deserialize)]
struct Commit {
    message: String,
}

#[derive(Deserialize)]
struct Add {
    files: Vec<String>,
}

#[derive(Deserialize)]
struct CreateBranch {
    branch_name: String,
    base_branch: Option<String>,
}

#[derive(Deserialize)]
struct Checkout {
    branch_name: String,
}

/// A change.
pub(super) struct Change {
    /// The arguments of Git, without the program.
    arguments: Vec<String>,
    /// What the result says before Git's own text.
    done: String,
}

impl Change {
    /// Parses the arguments of a tool; returns `None` for one that changes nothing.
    pub(super) fn parse(action: &str, value: &Value) -> Result<Option<Self>, NativeError> {
        let tool = name(action);
        let value = value.clone();
        let (words, done): (Vec<String>, String) = match action {
            "git_commit" => {
                let Commit { message } = arguments(&tool, value)?;
                if message.contains('\0') {
                    return Err(invalid(action, "`message` contains a NUL byte"));
                }
                (
                    vec!["commit".into(), format!("--message={message}")],
                    "Changes committed.".to_owned(),
                )
            }
            "git_add" => {
                let Add { files } = arguments(&tool, value)?;
                if files.is_empty()
                    || files.iter().any(|file| file.is_empty() || file.contains('\0'))
                {
                    return Err(invalid(action, "`files` must have paths"));
                }
                let words = ["add", "--"].map(str::to_owned).into_iter().chain(files);
                (words.collect(), "Files staged.".to_owned())
            }
            "git_reset" => (vec!["reset".into()], "All changes unstaged.".to_owned()),
            "git_create_branch" => {
                let CreateBranch { branch_name, base_branch } = arguments(&tool, value)?;
                check_name(action, "branch_name", &branch_name)?;
                if let Some(base) = &base_branch {
                    check_name(action, "base_branch", base)?;
                }
                let done = format!("Created branch '{branch_name}'.");
                let words = ["branch".to_owned(), branch_name].into_iter().chain(base_branch);
                (words.collect(), done)
            }
            "git_checkout" => {
                let Checkout { branch_name } = arguments(&tool, value)?;
                check_name(action, "branch_name", &branch_name)?;
                let done = format!("Switched to '{branch_name}'.");
                // With the last word, the name is never taken for a path, whose changes would be lost.
                (vec!["checkout".into(), branch_name, "--".into()], done)
            }
            _ => return Ok(None),
        };
        Ok(Some(Self { arguments: words, done }))
    }

    /// Returns the command.
    pub(super) fn argv(&self) -> Vec<String> {
        std::iter::once("git".to_owned()).chain(self.arguments.iter().cloned()).collect()
    }

    /// Makes the change.
    pub(super) async fn run(
        &self,
        repository: &Repository<'_>,
        policy: &PolicyOfRun,
        cancel: &CancellationToken,
    ) -> Result<String, NativeError> {
        let reach = CommandReach::Changing(CommandAccess::Workspace);
        let ended = repository.git(self.argv(), reach, policy, cancel).await?;
        let said = ended.stdout.text();
        Ok(format!("{}\n{said}", self.done).trim_end().to_owned())
    }
}
