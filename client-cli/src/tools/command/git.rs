//! Restricts Git when a program runs it.
//!
//! A repository may come from anywhere, and its settings can start programs even at `git status`. Read-only commands
//! run with all helpers disabled. Commands that change something keep hooks and filters, because the user's project
//! relies on them. File system monitors, pagers and editors are disabled for all commands.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use protocol::{ErrorCode, escape_text};

use crate::tools::NativeError;

/// Read-only commands of Git.
const READ_ONLY: &[&str] = &[
    "status",
    "diff",
    "log",
    "show",
    "blame",
    "annotate",
    "shortlog",
    "whatchanged",
    "rev-parse",
    "rev-list",
    "ls-files",
    "ls-tree",
    "cat-file",
    "describe",
    "grep",
    "name-rev",
    "diff-tree",
    "diff-index",
    "diff-files",
    "for-each-ref",
    "show-ref",
    "show-branch",
    "merge-base",
    "count-objects",
];

/// The commands of those that accept `--no-ext-diff` and `--no-textconv`.
const WITH_DIFF_OPTIONS: &[&str] = &[
    "diff",
    "log",
    "show",
    "whatchanged",
    "diff-tree",
    "diff-index",
    "diff-files",
    "blame",
    "annotate",
];

/// Options before the command that take the next argument as their value.
const WITH_VALUE: &[&str] =
    &["-C", "-c", "--git-dir", "--work-tree", "--namespace", "--config-env", "--attr-source"];

/// The time limit for listing a repository's settings.
const LIST_TIMEOUT: Duration = Duration::from_secs(5);

/// Returns whether a program is Git.
pub(super) fn is_git(program: &Path) -> bool {
    program.file_name().is_some_and(|name| name == "git")
}

/// Returns the index of the command among the arguments.
fn command_at(argv: &[String]) -> Option<usize> {
    let mut at = 1;
    while argv.get(at)?.starts_with('-') {
        at += if WITH_VALUE.contains(&argv[at].as_str()) { 2 } else { 1 };
    }
    (at < argv.len()).then_some(at)
}

/// Disables the helpers of a command by changing its arguments and environment variables.
///
/// # Errors
/// Returns `TOOL_FAILED` if the repository's filters and aliases cannot be listed, so that they cannot be disabled.
pub(super) async fn restrict(
    argv: &mut Vec<String>,
    variables: &mut BTreeMap<String, String>,
    program: &Path,
    folder: &Path,
) -> Result<(), NativeError> {
    let mut settings: Vec<(String, &str)> = [
        // It can name a program, which Git runs to find changed files.
        ("core.fsmonitor", "false"),
        ("core.pager", "cat"),
        ("core.askPass", ""),
        // The URL `ext::COMMAND` runs a command.
        ("protocol.ext.allow", "never"),
        // A bare repository must be named explicitly: a folder of the project could look like one.
        ("safe.bareRepository", "explicit"),
    ]
    .map(|(key, value)| (key.to_owned(), value))
    .into();
    for (name, value) in [
        // Git prefers these variables to `pager.COMMAND`, `core.editor` and `core.sshCommand`.
        ("GIT_PAGER", "cat"),
        // Git treats `:` as an editor that changes nothing, and starts no program for it.
        ("GIT_EDITOR", ":"),
        ("GIT_SEQUENCE_EDITOR", ":"),
        ("GIT_SSH_COMMAND", "ssh"),
        ("GIT_TERMINAL_PROMPT", "0"),
    ] {
        variables.insert(name.to_owned(), value.to_owned());
    }
    let Some(at) = command_at(argv) else {
        set(variables, settings);
        return Ok(());
    };
    // The name of an alias is in no list, so an alias never counts as read-only.
    let is_read_only = READ_ONLY.contains(&argv[at].as_str());
    if is_read_only {
        for (key, value) in [
            ("core.hooksPath", "/dev/null"),
            // Git verifies signatures by running `gpg.program`.
            ("log.showSignature", "false"),
            // Each submodule has settings of its own.
            ("submodule.recurse", "false"),
            ("diff.external", ""),
        ] {
            settings.push((key.to_owned(), value));
        }
        // Objects that a partial clone lacks would be fetched, by programs that its settings can name.
        variables.insert("GIT_NO_LAZY_FETCH".to_owned(), "1".to_owned());
        // A read-only command must not update the index, which would run the `post-index-change` hook.
        variables.insert("GIT_OPTIONAL_LOCKS".to_owned(), "0".to_owned());
    }
    // Set before the repository is queried, so that the query runs no helper either.
    set(variables, settings.clone());
    let keys = of_repository(&argv[1..at], variables, program, folder).await.map_err(|reason| {
        let message = format!(
            "`git` was not started, because the filters and aliases of the repository cannot be disabled: {reason}"
        );
        NativeError::new(ErrorCode::ToolFailed, message)
    })?;
    for key in keys {
        let matches = |start: &str, end: &str| key.starts_with(start) && key.ends_with(end);
        if matches("alias.", "") {
            // An alias that begins with `!` is a command for the shell.
            settings.push((key, ""));
        } else if is_read_only && matches("filter.", ".required") {
            // Without its command, a required filter makes Git fail.
            settings.push((key, "false"));
        } else if is_read_only && matches("filter.", "") {
            settings.push((key, ""));
        }
    }
    set(variables, settings);
    if WITH_DIFF_OPTIONS.contains(&argv[at].as_str()) {
        let off = ["--no-ext-diff", "--no-textconv"].map(str::to_owned);
        // Directly after the command: behind a `--` they would be paths.
        argv.splice(at + 1..at + 1, off);
    }
    Ok(())
}

/// Passes settings to Git in the environment, where they override all configuration files.
fn set(variables: &mut BTreeMap<String, String>, settings: Vec<(String, &str)>) {
    // Only `-c` among the arguments overrides these. The program chooses its arguments, and the
    // repository does not.
    variables.insert("GIT_CONFIG_COUNT".to_owned(), settings.len().to_string());
    for (index, (key, value)) in settings.into_iter().enumerate() {
        variables.insert(format!("GIT_CONFIG_KEY_{index}"), key);
        variables.insert(format!("GIT_CONFIG_VALUE_{index}"), value.to_owned());
    }
}

/// Lists the keys of filters and aliases that the repository itself sets. Listing does not run them.
///
/// # Errors
/// Returns why the list is missing or incomplete.
async fn of_repository(
    options: &[String],
    variables: &BTreeMap<String, String>,
    program: &Path,
    folder: &Path,
) -> Result<Vec<String>, String> {
    let mut command = tokio::process::Command::new(program);
    command.args(options).args(["config", "-z", "--show-scope", "--name-only"]);
    command.args(["--get-regexp", r"^(filter|alias)\."]);
    command.env_clear().envs(variables).current_dir(folder).kill_on_drop(true);
    command.stdin(Stdio::null());
    let listed = tokio::time::timeout(LIST_TIMEOUT, command.output()).await;
    let output = listed
        .map_err(|_| format!("`git config` did not exit within {} s", LIST_TIMEOUT.as_secs()))?
        .map_err(|error| format!("`git config` cannot be started: {error}"))?;
    // Git exits with 1 if no key matches.
    if !matches!(output.status.code(), Some(0 | 1)) {
        let message: String = String::from_utf8_lossy(&output.stderr).chars().take(300).collect();
        let message = escape_text(message.trim());
        return Err(format!("`git config` failed ({}): {message}", output.status));
    }
    // With replacement characters, a key would name a different filter, and its own would stay enabled.
    let text = String::from_utf8(output.stdout)
        .map_err(|_| "the name of a filter or alias is not UTF-8".to_owned())?;
    let words: Vec<&str> = text.split('\0').collect();
    // The user's own filters and aliases are trusted.
    let pairs = words.chunks_exact(2).filter(|pair| matches!(pair[0], "local" | "worktree"));
    Ok(pairs.map(|pair| pair[1].to_owned()).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_is_found_behind_options() {
        for (line, command) in [
            ("git status", Some("status")),
            ("git -C sub -c a.b=c --no-pager log -p", Some("log")),
            ("git --git-dir x --work-tree=y diff", Some("diff")),
            ("git --version", None),
            ("git", None),
            ("git -C", None),
        ] {
            let argv: Vec<String> = line.split(' ').map(str::to_owned).collect();
            let found = command_at(&argv).map(|at| argv[at].as_str());
            assert_eq!(found, command, "{line}");
        }
    }
}
