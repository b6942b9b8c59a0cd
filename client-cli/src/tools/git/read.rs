//! The arguments of the tools that only read a repository.

use std::path::{Component, Path};

use serde::Deserialize;
use serde_json::Value;

use super::{check_name, invalid, name};
use crate::tools::{NativeError, arguments};

/// The maximum number of lines of context around a change.
const CONTEXT_LIMIT: u32 = 10_000;

/// The maximum number of commits that are listed.
const COMMITS_LIMIT: u32 = 10_000;

#[derive(Deserialize)]
struct Difference {
    #[serde(default = "default_context")]
    context_lines: u32,
}

#[derive(Deserialize)]
struct Target {
    target: String,
}

#[derive(Deserialize)]
struct Log {
    #[serde(default = "default_count")]
    max_count: u32,
    start_timestamp: Option<String>,
    end_timestamp: Option<String>,
}

#[derive(Deserialize)]
struct Show {
    revision: String,
}

#[derive(Deserialize)]
struct Branch {
    branch_type: String,
    contains: Option<String>,
    not_contains: Option<String>,
}

fn default_context() -> u32 {
    3
}

fn default_count() -> u32 {
    10
}

/// What is read.
pub(super) enum Read {
    /// The state of the working tree.
    Status,
    /// The difference between two states.
    Diff { between: Between, context: u32 },
    /// A list of commits.
    Log { count: u32, since: Option<String>, until: Option<String> },
    /// A commit with its changes.
    Commit { revision: String },
    /// A file or folder in a commit.
    Content { revision: String, path: String },
    /// Branches.
    Branches { places: &'static [&'static str], contains: Option<String>, lacks: Option<String> },
}

/// Two states.
pub(super) enum Between {
    /// The index and the working tree.
    Unstaged,
    /// The last commit and the index.
    Staged,
    /// A commit and the working tree.
    Target(String),
    /// Two commits; `from_base` if the first is replaced by where the second began to differ from it.
    Commits { from: String, to: String, from_base: bool },
}

impl Read {
    /// Parses the arguments of a tool; returns `None` for an unknown one.
    pub(super) fn parse(action: &str, value: Value) -> Result<Option<Self>, NativeError> {
        let tool = name(action);
        let check = |field: &str, name: &str| check_name(action, field, name);
        let difference = |between| -> Result<Self, NativeError> {
            let Difference { context_lines } = arguments(&tool, value.clone())?;
            Ok(Self::Diff { between, context: context_lines.min(CONTEXT_LIMIT) })
        };
        Ok(Some(match action {
            "git_status" => Self::Status,
            "git_diff_unstaged" => difference(Between::Unstaged)?,
            "git_diff_staged" => difference(Between::Staged)?,
            "git_diff" => {
                let Target { target } = arguments(&tool, value.clone())?;
                check("target", &target)?;
                difference(Between::parse(target))?
            }
            "git_log" => {
                let Log { max_count, start_timestamp, end_timestamp } =
                    arguments(&tool, value.clone())?;
                for (field, time) in
                    [("start_timestamp", &start_timestamp), ("end_timestamp", &end_timestamp)]
                {
                    if time.as_ref().is_some_and(|time| time.contains('\0')) {
                        return Err(invalid(action, &format!("`{field}` contains a NUL byte")));
                    }
                }
                let count = max_count.min(COMMITS_LIMIT);
                Self::Log { count, since: start_timestamp, until: end_timestamp }
            }
            "git_show" => {
                let Show { revision } = arguments(&tool, value.clone())?;
                check("revision", &revision)?;
                match revision.split_once(':') {
                    None => Self::Commit { revision },
                    // In braces, `:` belongs to a time or to a text that is searched for.
                    Some((commit, path)) if !commit.is_empty() && !commit.contains('{') => {
                        let is_plain = Path::new(path)
                            .components()
                            .all(|part| matches!(part, Component::Normal(_)));
                        if !is_plain {
                            let reason = "the path in `revision` must begin at the top of the repository, without `.` and `..`";
                            return Err(invalid(action, reason));
                        }
                        // As Git compares it, without a `/` at the end.
                        let path = path.trim_end_matches('/').to_owned();
                        Self::Content { revision: commit.to_owned(), path }
                    }
                    Some(_) => {
                        return Err(invalid(
                            action,
                            "`revision` must be a commit, or a commit and a path: `HEAD:src/a.txt`",
                        ));
                    }
                }
            }
            "git_branch" => {
                let Branch { branch_type, contains, not_contains } =
                    arguments(&tool, value.clone())?;
                let places: &[_] = match branch_type.as_str() {
                    "local" => &["refs/heads"],
                    "remote" => &["refs/remotes"],
                    "all" => &["refs/heads", "refs/remotes"],
                    _ => {
                        let reason = "`branch_type` must be `local`, `remote` or `all`";
                        return Err(invalid(action, reason));
                    }
                };
                let given = |commit: Option<String>| commit.filter(|commit| !commit.is_empty());
                let (contains, lacks) = (given(contains), given(not_contains));
                for (field, commit) in [("contains", &contains), ("not_contains", &lacks)] {
                    commit.as_ref().map_or(Ok(()), |commit| check(field, commit))?;
                }
                Self::Branches { places, contains, lacks }
            }
            _ => return Ok(None),
        }))
    }
}

impl Between {
    fn parse(target: String) -> Self {
        let sides = |separator| target.split_once(separator);
        let side = |text: &str| if text.is_empty() { "HEAD".to_owned() } else { text.to_owned() };
        match (sides("..."), sides("..")) {
            (Some((from, to)), _) => {
                Self::Commits { from: side(from), to: side(to), from_base: true }
            }
            (None, Some((from, to))) => {
                Self::Commits { from: side(from), to: side(to), from_base: false }
            }
            (None, None) => Self::Target(target),
        }
    }
}
