//! Reads a repository for one call, as far as the program may read its files.
//!
//! Revisions are resolved to commits first, so that no text of the program reaches another command of Git. Before a
//! difference is shown, Git lists the files in it, and the difference is limited to those that the program may read.

use std::fmt::Write as _;

use protocol::{ErrorCode, escape_text};
use tokio_util::sync::CancellationToken;

use super::Repository;
use super::read::{Between, Read};
use crate::policy::{Operation, PolicyOfRun};
use crate::tools::NativeError;
use crate::tools::command::{CommandReach, Ended};

/// The maximum size of the paths that limit one difference, in bytes. The kernel limits the arguments of a program.
const PATHS_LIMIT: usize = 512 * 1024;

/// The maximum number of files that are named because they are not shown.
const NAMED_LIMIT: usize = 20;

/// Git does not look into the working trees of submodules, whose settings it would follow.
const SUBMODULES: &str = "--ignore-submodules=dirty";

/// Reads a repository for one call.
pub(super) struct Reader<'a> {
    pub(super) repository: &'a Repository<'a>,
    pub(super) policy: &'a PolicyOfRun,
    pub(super) cancel: &'a CancellationToken,
}

/// The files of a difference.
#[derive(Default)]
struct Files {
    /// Those that may be read.
    shown: Vec<String>,
    /// Those that may not.
    hidden: Vec<String>,
    /// The names of those that may be told, with the reason.
    named: Vec<String>,
    /// The number of the others.
    unnamed: usize,
}

impl Reader<'_> {
    /// Reads what a call wants.
    pub(super) async fn read(&self, wanted: Read) -> Result<String, NativeError> {
        match wanted {
            Read::Status => self.status().await,
            Read::Diff { between, context } => self.diff(between, context).await,
            Read::Log { count, since, until } => self.log(count, since, until).await,
            Read::Commit { revision } => self.commit(&revision).await,
            Read::Content { revision, path } => self.content(&revision, &path).await,
            Read::Branches { places, contains, lacks } => {
                let mut words = words(&["for-each-ref", "--format=%(HEAD) %(refname:short)"]);
                words.extend(places.iter().map(|place| (*place).to_owned()));
                for (option, commit) in [("--contains", contains), ("--no-contains", lacks)] {
                    if let Some(commit) = commit {
                        words.push(format!("{option}={}", self.resolve(&commit).await?));
                    }
                }
                Ok(strip(&self.text(words).await?).to_owned())
            }
        }
    }

    /// Runs Git without the right to change anything.
    async fn git(&self, mut words: Vec<String>) -> Result<Ended, NativeError> {
        words.insert(0, "git".to_owned());
        self.repository.git(words, CommandReach::Reading, self.policy, self.cancel).await
    }

    /// Returns what a command of Git prints.
    async fn text(&self, words: Vec<String>) -> Result<String, NativeError> {
        let ended = self.git(words).await?;
        let mut text = ended.stdout.text();
        if ended.stdout.is_cut {
            let _ = write!(text, "\n… cut after {} bytes", ended.stdout.bytes.len());
        }
        Ok(text)
    }

    /// Returns the hash of a commit.
    async fn resolve(&self, revision: &str) -> Result<String, NativeError> {
        let commit = format!("{revision}^{{commit}}");
        let words = words(&["rev-parse", "--verify", "--quiet", &commit]);
        let ended = self.git(words).await.map_err(|error| match error.code {
            ErrorCode::ToolFailed if error.message.ends_with(": ") => {
                let message = format!(
                    "`{}` is not a commit of the repository `{}`",
                    escape_text(revision),
                    escape_text(&self.repository.given)
                );
                NativeError::new(ErrorCode::ToolFailed, message)
            }
            _ => error,
        })?;
        Ok(ended.stdout.text().trim().to_owned())
    }

    /// Returns whether the policy lets a listing show a path of the repository.
    fn shows(&self, path: &str) -> bool {
        let real = self.repository.real.join(path);
        let workspace = self.repository.commands.workspace;
        workspace.guarded(self.policy.policy(), path, &real, Operation::List).is_ok()
    }

    /// Checks that a file of the repository may be read without a question. Returns the reason why not.
    fn check_readable(&self, path: &str) -> Result<(), String> {
        let real = self.repository.real.join(path);
        let workspace = self.repository.commands.workspace;
        match workspace.guarded(self.policy.policy(), path, &real, Operation::Read) {
            Ok(None) => Ok(()),
            Ok(Some(place)) => Err(place.reason.to_owned()),
            Err(error) => Err(error.to_string()),
        }
    }

    async fn status(&self) -> Result<String, NativeError> {
        let options = ["status", SUBMODULES, "--untracked-files=all", "--no-renames"];
        let list = [&options[..], &["--porcelain=v1", "--branch", "-z"]].concat();
        let ended = self.git(words(&list)).await?;
        let listed = ended.stdout.text();
        // The first line names the branch. The others have two letters, a space and the path.
        let mut lines = listed.split_terminator('\0');
        let branch = lines.next().unwrap_or_default();
        let (shown, hidden): (Vec<&str>, Vec<&str>) =
            lines.partition(|line| line.get(3..).is_some_and(|path| self.shows(path)));
        if hidden.is_empty() && !ended.stdout.is_cut {
            // Programs look for the sentences of Git.
            let text = self.text(words(&["status", SUBMODULES])).await?;
            return Ok(format!("Repository status:\n{}", strip(&text)));
        }
        // Those could be wrong: a working tree with changes that are not shown is not clean.
        let mut out = format!("Repository status:\n{}\n", escape_text(branch));
        shown.iter().for_each(|line| {
            let _ = writeln!(out, "{}", escape_text(line));
        });
        if ended.stdout.is_cut {
            let _ = writeln!(out, "… cut after {} bytes", ended.stdout.bytes.len());
        }
        let files = Files { unnamed: hidden.len(), ..Files::default() };
        Ok(out + &files.note())
    }

    async fn log(
        &self,
        count: u32,
        since: Option<String>,
        until: Option<String>,
    ) -> Result<String, NativeError> {
        let mut words = words(&["log", "-z", "--format=%H%n%an%n%aI%n%B"]);
        words.push(format!("--max-count={count}"));
        words.extend(since.map(|time| format!("--since={time}")));
        words.extend(until.map(|time| format!("--until={time}")));
        words.push("--".to_owned());
        let ended = self.git(words).await?;
        let mut commits = Vec::new();
        for commit in ended.stdout.text().split_terminator('\0') {
            let mut fields = commit.splitn(4, '\n');
            let mut field = || fields.next().unwrap_or_default();
            let (hash, author, date, message) = (field(), field(), field(), field());
            let date = chrono::DateTime::parse_from_rfc3339(date).map_or_else(
                |_| date.to_owned(),
                |date| date.format("%Y-%m-%d %H:%M:%S%:z").to_string(),
            );
            let line =
                format!("Commit: {hash}\nAuthor: {author}\nDate: {date}\nMessage: {message}\n");
            commits.push(line);
        }
        let mut out = format!("Commit history:\n{}", commits.join("\n"));
        if ended.stdout.is_cut {
            let _ = write!(out, "\n… cut after {} bytes", ended.stdout.bytes.len());
        }
        Ok(out)
    }

    async fn diff(&self, between: Between, context: u32) -> Result<String, NativeError> {
        let (title, states) = match between {
            Between::Unstaged => ("Unstaged changes:\n".to_owned(), Vec::new()),
            Between::Staged => ("Staged changes:\n".to_owned(), words(&["--cached"])),
            Between::Target(target) => {
                (format!("Diff with {target}:\n"), vec![self.resolve(&target).await?])
            }
            Between::Commits { from, to, from_base } => {
                let dots = if from_base { "..." } else { ".." };
                let title = format!("Diff with {from}{dots}{to}:\n");
                let (from, to) = (self.resolve(&from).await?, self.resolve(&to).await?);
                (title, vec![format!("{from}{dots}{to}")])
            }
        };
        let mut list = words(&["diff", SUBMODULES, "--name-only", "--no-renames", "-z"]);
        list.extend(states.iter().cloned());
        let files = self.files(list).await?;
        let mut out = title;
        if !files.shown.is_empty() {
            let mut words = words(&["diff", SUBMODULES, "--submodule=short", "--no-color"]);
            words.push(format!("--unified={context}"));
            words.extend(states);
            words.extend(files.pathspecs()?);
            out += strip(&self.text(words).await?);
        }
        Ok(out + &files.note())
    }

    async fn commit(&self, revision: &str) -> Result<String, NativeError> {
        let commit = self.resolve(revision).await?;
        // A merge is shown as what it brought to the branch.
        let show =
            ["show", SUBMODULES, "--submodule=short", "--no-color", "--diff-merges=first-parent"];
        let mut list = words(&show);
        list.extend(words(&["--format=", "--name-only", "--no-renames", "-z", &commit]));
        let files = self.files(list).await?;
        let head = words(&[
            "show",
            "--no-color",
            "--no-patch",
            "--no-mailmap",
            "--no-notes",
            "--format=medium",
            "--date=iso",
            &commit,
            "--",
        ]);
        let mut out = self.text(head).await?;
        if !files.shown.is_empty() {
            let mut words = words(&show);
            words.extend(["--format=".to_owned(), commit]);
            words.extend(files.pathspecs()?);
            let _ = write!(out, "\n{}", self.text(words).await?);
        }
        Ok(out + &files.note())
    }

    async fn content(&self, revision: &str, path: &str) -> Result<String, NativeError> {
        let commit = self.resolve(revision).await?;
        let object = format!("{commit}:{path}");
        let kind = self.text(words(&["cat-file", "-t", &object])).await?;
        if kind.trim() == "tree" {
            if !path.is_empty() && !self.shows(path) {
                return Err(self.refused(path, "the policy does not show it"));
            }
            let listed = self.git(words(&["ls-tree", "-z", &object])).await?;
            let mut names = Vec::new();
            for line in listed.stdout.text().split_terminator('\0') {
                // The mode, the kind and the hash stand before the tab.
                let Some((about, name)) = line.split_once('\t') else { continue };
                let full = if path.is_empty() { name.to_owned() } else { format!("{path}/{name}") };
                if self.shows(&full) {
                    let end = if about.contains(" tree ") { "/" } else { "" };
                    names.push(format!("{}{end}", escape_text(name)));
                }
            }
            return Ok(names.join("\n"));
        }
        self.check_readable(path).map_err(|reason| self.refused(path, &reason))?;
        self.text(words(&["cat-file", "blob", &object])).await
    }

    fn refused(&self, path: &str, reason: &str) -> NativeError {
        let message = format!(
            "`{}` of the repository `{}` cannot be read by `git`: {reason}",
            escape_text(path),
            escape_text(&self.repository.given)
        );
        NativeError::new(ErrorCode::PolicyDenied, message)
    }

    /// Lists the files of a difference.
    async fn files(&self, mut words: Vec<String>) -> Result<Files, NativeError> {
        words.push("--".to_owned());
        let listed = self.git(words).await?;
        if listed.stdout.is_cut {
            return Err(too_many());
        }
        let mut files = Files::default();
        for name in listed.stdout.bytes.split(|byte| *byte == 0).filter(|name| !name.is_empty()) {
            let Ok(name) = std::str::from_utf8(name) else {
                files.unnamed += 1;
                continue;
            };
            match self.check_readable(name) {
                Ok(()) => files.shown.push(name.to_owned()),
                Err(reason) => {
                    files.hidden.push(name.to_owned());
                    match self.shows(name) && files.named.len() < NAMED_LIMIT {
                        true => files.named.push(format!("`{}` ({reason})", escape_text(name))),
                        false => files.unnamed += 1,
                    }
                }
            }
        }
        Ok(files)
    }
}

impl Files {
    /// Returns the arguments that limit a difference to the files that may be read.
    fn pathspecs(&self) -> Result<Vec<String>, NativeError> {
        // Of a path that was a file and is a folder now, the files in it are judged, too: the ones that are hidden are
        // excluded.
        let shown = self.shown.iter().map(|path| format!(":(top,literal){path}"));
        let hidden = self.hidden.iter().map(|path| format!(":(top,literal,exclude){path}"));
        let paths = std::iter::once("--".to_owned()).chain(shown).chain(hidden);
        let paths: Vec<String> = paths.collect();
        match paths.iter().map(|path| path.len() + 16).sum::<usize>() > PATHS_LIMIT {
            true => Err(too_many()),
            false => Ok(paths),
        }
    }

    /// Says which files are not shown.
    fn note(&self) -> String {
        let mut parts = self.named.clone();
        if self.unnamed > 0 {
            let others = if parts.is_empty() { "" } else { "other " };
            parts.push(format!("{} {others}files", self.unnamed));
        }
        match parts.is_empty() {
            true => String::new(),
            false => format!("\n\nNot shown: {}\n", parts.join(", ")),
        }
    }
}

/// Removes the end of the last line, as the reference server does.
fn strip(text: &str) -> &str {
    text.strip_suffix('\n').unwrap_or(text)
}

fn too_many() -> NativeError {
    NativeError::new(
        ErrorCode::ToolFailed,
        "the difference has too many files; compare states that are closer to each other",
    )
}

fn words(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}
