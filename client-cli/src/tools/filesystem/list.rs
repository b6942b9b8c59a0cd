//! Lists and searches folders.

use std::ffi::OsStr;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use execution::files::stat_name;
use rustix::fs::{Dir, FileType, OFlags};
use serde::Deserialize;
use serde_json::{Value, json};

use super::glob::{self, Pattern};
use super::{Cancelled, Check, failed, read};
use crate::policy::Operation;
use crate::tools::{NativeError, RESULT_LIMIT, arguments};
use crate::workspace::beneath::Opened;
use crate::workspace::path_error::{PathError, shown};
use crate::workspace::protected::is_own;
use crate::workspace::reach::Reach;

/// The maximum number of entries that one call reads.
const ENTRIES_LIMIT: usize = 200_000;

/// The maximum depth of a walk.
const DEPTH_LIMIT: usize = 128;

struct Entry {
    name: String,
    kind: FileType,
}

impl Entry {
    fn label(&self) -> &'static str {
        if self.kind == FileType::Directory { "[DIR]" } else { "[FILE]" }
    }
}

/// Opens a folder whose names may be shown.
fn open_folder(workspace: Reach<'_>, given: &str) -> Result<Opened, PathError> {
    let opened = workspace.open_folder(given, &workspace.relative(given)?)?;
    workspace.allow(given, &opened.real, Operation::List)?;
    Ok(opened)
}

/// Returns a folder's entries, sorted by name.
fn entries(workspace: Reach<'_>, given: &str, folder: &Opened) -> Result<Vec<Entry>, NativeError> {
    let system = |errno| PathError::System { path: shown(given), errno };
    let mut found = Vec::new();
    for entry in Dir::read_from(&folder.fd).map_err(system)? {
        let entry = entry.map_err(system)?;
        let raw = entry.file_name();
        if matches!(raw.to_bytes(), b"." | b"..") {
            continue;
        }
        // A name that is not UTF-8 is listed with replacement characters. As that name usually does
        // not exist, such a folder is not entered.
        let name = raw.to_string_lossy().into_owned();
        // It cannot be read, so a program that reads everything that is listed would fail.
        if is_own(&name) || !workspace.shows(&folder.real.join(OsStr::from_bytes(raw.to_bytes()))) {
            continue;
        }
        let kind = match entry.file_type() {
            // Some file systems do not store the type in the directory.
            FileType::Unknown => stat_name(folder.fd.as_fd(), &name)
                .map_or(FileType::Unknown, |stat| FileType::from_raw_mode(stat.st_mode)),
            kind => kind,
        };
        found.push(Entry { name, kind });
        if found.len() > ENTRIES_LIMIT {
            return Err(too_many());
        }
    }
    found.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(found)
}

fn too_many() -> NativeError {
    failed(format!("there are more than {ENTRIES_LIMIT} entries; choose a smaller directory"))
}

#[derive(Deserialize)]
struct ListDirectory {
    path: String,
}

/// Checks the arguments of a listing or search, and whether its folder may be read.
pub(super) fn check(check: &mut Check<'_>, action: &str, value: Value) -> Result<(), NativeError> {
    let tool = format!("filesystem:{action}");
    if action == "directory_tree" {
        arguments::<DirectoryTree>(&tool, value.clone())?.excluded()?;
    }
    if action == "search_files" {
        let input: SearchFiles = arguments(&tool, value.clone())?;
        Pattern::new(action, &input.pattern)?;
        glob::all(action, &input.exclude_patterns)?;
    }
    if action == "list_directory_with_sizes" {
        arguments::<ListWithSizes>(&tool, value.clone())?;
    }
    read::check_metadata(check, &tool, value)
}

pub(super) fn list_directory(workspace: Reach<'_>, value: Value) -> Result<String, NativeError> {
    let input: ListDirectory = arguments("filesystem:list_directory", value)?;
    let folder = open_folder(workspace, &input.path)?;
    let lines: Vec<String> = entries(workspace, &input.path, &folder)?
        .iter()
        .map(|entry| format!("{} {}", entry.label(), entry.name))
        .collect();
    Ok(lines.join("\n"))
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ListWithSizes {
    path: String,
    #[serde(default)]
    sort_by: SortBy,
}

#[derive(Default, Deserialize, PartialEq)]
#[serde(rename_all = "lowercase")]
enum SortBy {
    #[default]
    Name,
    Size,
}

pub(super) fn list_directory_with_sizes(
    workspace: Reach<'_>,
    value: Value,
) -> Result<String, NativeError> {
    let input: ListWithSizes = arguments("filesystem:list_directory_with_sizes", value)?;
    let folder = open_folder(workspace, &input.path)?;
    let mut sized: Vec<(Entry, u64)> = entries(workspace, &input.path, &folder)?
        .into_iter()
        .map(|entry| {
            let size = size_of(workspace, &folder.real.join(&entry.name))?;
            Ok((entry, size))
        })
        .collect::<Result<_, PathError>>()?;
    if input.sort_by == SortBy::Size {
        sized.sort_by_key(|(_, size)| std::cmp::Reverse(*size));
    }
    let (mut files, mut folders, mut total) = (0, 0, 0_u64);
    let mut lines = Vec::with_capacity(sized.len() + 3);
    for (entry, size) in &sized {
        let shown_size = if entry.kind == FileType::Directory {
            folders += 1;
            String::new()
        } else {
            files += 1;
            total = total.saturating_add(*size);
            format!("{:>10}", format_size(*size))
        };
        lines.push(format!("{} {:<30} {shown_size}", entry.label(), entry.name));
    }
    lines.push(String::new());
    lines.push(format!("Total: {files} files, {folders} directories"));
    lines.push(format!("Combined size: {}", format_size(total)));
    Ok(lines.join("\n"))
}

/// Returns the size of a name's target; 0 if it is outside the workspace.
///
/// # Errors
/// Returns [`PathError`] if the system is out of descriptors.
fn size_of(workspace: Reach<'_>, relative: &Path) -> Result<u64, PathError> {
    match workspace.open_beneath("", relative, OFlags::PATH) {
        // A link may lead to a file that the policy hides.
        Ok(opened) if !workspace.shows(&opened.real) => Ok(0),
        Ok(opened) => Ok(u64::try_from(opened.stat.st_size).unwrap_or(0)),
        Err(error) if error.is_exhausted() => Err(error),
        Err(_) => Ok(0),
    }
}

fn format_size(bytes: u64) -> String {
    let mut value = bytes as f64;
    let mut unit = "B";
    for next in ["KB", "MB", "GB", "TB"] {
        if value < 1024.0 {
            break;
        }
        value /= 1024.0;
        unit = next;
    }
    if unit == "B" { format!("{bytes} B") } else { format!("{value:.2} {unit}") }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct DirectoryTree {
    path: String,
    #[serde(default)]
    exclude_patterns: Vec<String>,
}

impl DirectoryTree {
    /// Compiles the patterns. A plain name excludes files and folders of that name, with their contents, at any depth.
    fn excluded(&self) -> Result<Vec<Pattern>, NativeError> {
        let tool = "directory_tree";
        let mut patterns = glob::all(tool, &self.exclude_patterns)?;
        for name in self.exclude_patterns.iter().filter(|text| !text.contains('*')) {
            patterns.push(Pattern::new(tool, &format!("**/{name}"))?);
            patterns.push(Pattern::new(tool, &format!("**/{name}/**"))?);
        }
        Ok(patterns)
    }
}

pub(super) fn directory_tree(
    workspace: Reach<'_>,
    value: Value,
    cancelled: Cancelled<'_>,
) -> Result<String, NativeError> {
    let input: DirectoryTree = arguments("filesystem:directory_tree", value)?;
    let mut walk =
        Walk { workspace, given: &input.path, exclude: input.excluded()?, seen: 0, cancelled };
    let root = open_folder(workspace, &input.path)?;
    let tree = walk.tree(root, Path::new(""), 0)?;
    serde_json::to_string_pretty(&tree)
        .map_err(|error| failed(format!("the tree cannot be shown: {error}")))
}

struct Walk<'a> {
    workspace: Reach<'a>,
    given: &'a str,
    exclude: Vec<Pattern>,
    seen: usize,
    cancelled: Cancelled<'a>,
}

impl Walk<'_> {
    fn tree(&mut self, folder: Opened, inner: &Path, depth: usize) -> Result<Value, NativeError> {
        let mut nodes = Vec::new();
        let entries = self.visit(&folder)?;
        // Closed before its subfolders are opened, so that the walk holds one descriptor at any depth.
        let real = folder.real;
        drop(folder.fd);
        for entry in entries {
            let path = inner.join(&entry.name);
            if self.is_excluded(&path) {
                continue;
            }
            // A link to a folder is not entered: a walk that follows links may never end.
            if entry.kind != FileType::Directory {
                nodes.push(json!({ "name": entry.name, "type": "file" }));
                continue;
            }
            let children = match self.enter(&real.join(&entry.name), depth + 1)? {
                Some(child) => self.tree(child, &path, depth + 1)?,
                None => json!([]),
            };
            nodes.push(json!({ "name": entry.name, "type": "directory", "children": children }));
        }
        Ok(Value::Array(nodes))
    }

    fn visit(&mut self, folder: &Opened) -> Result<Vec<Entry>, NativeError> {
        // Asked once per folder: nothing interrupts a thread that is reading a directory.
        if (self.cancelled)() {
            return Err(NativeError::new(protocol::ErrorCode::Cancelled, "the run was cancelled"));
        }
        let found = entries(self.workspace, self.given, folder)?;
        self.seen += found.len();
        if self.seen > ENTRIES_LIMIT {
            return Err(too_many());
        }
        Ok(found)
    }

    fn is_excluded(&self, path: &Path) -> bool {
        let text = path.to_string_lossy();
        self.exclude.iter().any(|pattern| pattern.matches(&text))
    }

    /// Opens a folder of the walk; `None` if it cannot be read.
    fn enter(&self, real: &Path, depth: usize) -> Result<Option<Opened>, NativeError> {
        if depth > DEPTH_LIMIT {
            let message = format!(
                "directories are nested deeper than {DEPTH_LIMIT}; start in a deeper directory"
            );
            return Err(failed(message));
        }
        let opened = self.workspace.open_folder(self.given, real).and_then(|child| {
            self.workspace.allow_inner(self.given, &child.real)?;
            Ok(child)
        });
        match opened {
            Ok(child) => Ok(Some(child)),
            Err(error) if error.is_exhausted() => Err(error.into()),
            // Deleted in the meantime, not readable, PML's own, or hidden by the policy.
            Err(
                PathError::System { .. }
                | PathError::Protected { .. }
                | PathError::Denied { .. }
                | PathError::Outside { .. },
            ) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Returns whether a name leads to something in the workspace.
    fn leads_inside(&self, real: &Path) -> Result<bool, NativeError> {
        match self.workspace.open_beneath(self.given, real, OFlags::PATH) {
            Ok(opened) => Ok(self.workspace.shows(&opened.real)),
            Err(error) if error.is_exhausted() => Err(error.into()),
            Err(_) => Ok(false),
        }
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct SearchFiles {
    path: String,
    pattern: String,
    #[serde(default)]
    exclude_patterns: Vec<String>,
}

pub(super) fn search_files(
    workspace: Reach<'_>,
    value: Value,
    cancelled: Cancelled<'_>,
) -> Result<String, NativeError> {
    let tool = "search_files";
    let input: SearchFiles = arguments("filesystem:search_files", value)?;
    let pattern = Pattern::new(tool, &input.pattern)?;
    let mut walk = Walk {
        workspace,
        given: &input.path,
        exclude: glob::all(tool, &input.exclude_patterns)?,
        seen: 0,
        cancelled,
    };
    let root = open_folder(workspace, &input.path)?;
    let start = root.real;
    drop(root.fd);
    let mut results: Vec<String> = Vec::new();
    let mut size = 0;
    // Each folder is opened when it is visited: a folder may have more subfolders than a process may have open files.
    let mut folders = vec![(PathBuf::new(), 0)];
    while let Some((inner, depth)) = folders.pop() {
        let Some(folder) = walk.enter(&start.join(&inner), depth)? else { continue };
        for entry in walk.visit(&folder)? {
            let path = inner.join(&entry.name);
            // A link is included only if its target is in the workspace.
            let hidden =
                entry.kind == FileType::Symlink && !walk.leads_inside(&start.join(&path))?;
            if hidden || walk.is_excluded(&path) {
                continue;
            }
            if pattern.matches(&path.to_string_lossy()) {
                let full = workspace.root().join(&start).join(&path).to_string_lossy().into_owned();
                size += full.len() + 1;
                if size > RESULT_LIMIT {
                    return Err(super::too_large("the result", size as u64, "narrow the pattern"));
                }
                results.push(full);
            }
            if entry.kind == FileType::Directory {
                folders.push((path, depth + 1));
            }
        }
    }
    // The walk takes folders from a stack, so the results are not in order.
    results.sort();
    Ok(if results.is_empty() { "No matches found".to_owned() } else { results.join("\n") })
}
