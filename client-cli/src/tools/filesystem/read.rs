//! Reads text files and file metadata.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::os::fd::AsFd;

use chrono::{DateTime, Utc};
use protocol::ErrorCode;
use rustix::fs::{AtFlags, FileType, OFlags, StatxFlags, StatxTimestamp};
use serde::Deserialize;
use serde_json::Value;

use super::{Check, failed, invalid, too_large};
use crate::policy::{Limit, Operation};
use crate::tools::{NativeError, RESULT_LIMIT, arguments};
use crate::workspace::beneath::Opened;
use crate::workspace::path_error::{PathError, shown};
use crate::workspace::reach::Reach;

/// The number of bytes per read.
const CHUNK: usize = 64 * 1024;

/// The maximum number of files that one call reads.
const FILES_LIMIT: usize = 1_000;

#[derive(Deserialize)]
struct ReadText {
    path: String,
    // Not integers: the schema of the reference server says `number`, so `10.0` is valid.
    tail: Option<f64>,
    head: Option<f64>,
}

/// Opens a regular file whose content may be read.
pub(super) fn open(workspace: Reach<'_>, given: &str) -> Result<Opened, NativeError> {
    let opened = workspace.open_file(given)?;
    workspace.allow(given, &opened.real, Operation::Read)?;
    Ok(opened)
}

/// Checks the place of a file that would be read. The file may be missing: an earlier call may create it.
pub(super) fn check_file(check: &mut Check<'_>, given: &str) -> Result<(), NativeError> {
    let real = check.workspace.real_of(given, &check.workspace.relative(given)?)?;
    check.at(given, &real, Operation::Read)
}

pub(super) fn check_text(check: &mut Check<'_>, value: Value) -> Result<(), NativeError> {
    let input: ReadText = arguments("filesystem:read_text_file", value)?;
    input.lines()?;
    check_file(check, &input.path)
}

pub(super) fn check_path(
    check: &mut Check<'_>,
    tool: &str,
    value: Value,
) -> Result<(), NativeError> {
    let input: OnePath = arguments(tool, value)?;
    check_file(check, &input.path)
}

/// Checks a place whose listing or metadata would be read.
pub(super) fn check_metadata(
    check: &mut Check<'_>,
    tool: &str,
    value: Value,
) -> Result<(), NativeError> {
    let input: OnePath = arguments(tool, value)?;
    let real = check.workspace.real_of(&input.path, &check.workspace.relative(&input.path)?)?;
    check.at(&input.path, &real, Operation::List)
}

/// Checks several files. The call itself reports an unreadable one in place of its content.
pub(super) fn check_multiple(check: &mut Check<'_>, value: Value) -> Result<(), NativeError> {
    let input: ReadMultiple = arguments("filesystem:read_multiple_files", value)?;
    input.check()?;
    for path in &input.paths {
        // A path outside the workspace is reported by the call itself.
        let _ = check_file(check, path);
    }
    Ok(())
}

impl ReadText {
    /// Returns the requested numbers of lines from the beginning and from the end; 0 for all.
    fn lines(&self) -> Result<(usize, usize), NativeError> {
        let tool = "read_text_file";
        let (head, tail) = (lines(tool, "head", self.head)?, lines(tool, "tail", self.tail)?);
        if head > 0 && tail > 0 {
            return Err(invalid(tool, "`head` and `tail` cannot be given together"));
        }
        Ok((head, tail))
    }
}

impl ReadMultiple {
    fn check(&self) -> Result<(), NativeError> {
        if self.paths.is_empty() || self.paths.len() > FILES_LIMIT {
            let reason = format!("`paths` must have 1 to {FILES_LIMIT} entries");
            return Err(invalid("read_multiple_files", &reason));
        }
        Ok(())
    }
}

pub(super) fn read_text_file(workspace: Reach<'_>, value: Value) -> Result<String, NativeError> {
    let input: ReadText = arguments("filesystem:read_text_file", value)?;
    let (head, tail) = input.lines()?;
    let opened = open(workspace, &input.path)?;
    let size = u64::try_from(opened.stat.st_size).unwrap_or(0);
    let file = File::from(opened.fd);
    let limit = ReadLimit::of(workspace, RESULT_LIMIT);
    if tail > 0 {
        return last_lines(file, &input.path, size, tail, limit);
    }
    if head > 0 {
        return first_lines(file, &input.path, head, limit);
    }
    let bytes = read_all(file, &input.path, size, limit)?;
    Ok(decode(bytes))
}

/// Parses a line count; the reference server treats 0 as "all".
fn lines(tool: &str, name: &str, count: Option<f64>) -> Result<usize, NativeError> {
    match count {
        None => Ok(0),
        Some(count) if count >= 0.0 && count.fract() == 0.0 && count <= 1e9 => Ok(count as usize),
        Some(_) => Err(invalid(tool, &format!("`{name}` must be a whole number of lines"))),
    }
}

/// The maximum number of bytes of one read.
pub(super) struct ReadLimit {
    bytes: usize,
    /// The part of a policy that sets it, if one does.
    of_policy: Option<String>,
}

impl ReadLimit {
    /// Returns the limit of a tool, or that of the policy if it is lower.
    pub(super) fn of(workspace: Reach<'_>, limit: usize) -> Self {
        match workspace.policy().policy().read_limit() {
            Some(Limit { value, named }) if value < limit as u64 => {
                Self { bytes: value as usize, of_policy: Some(named) }
            }
            _ => Self { bytes: limit, of_policy: None },
        }
    }

    /// Returns the error for something that is larger.
    fn exceeded(&self, what: &str, size: u64, hint: &str) -> NativeError {
        let Some(named) = &self.of_policy else { return too_large(what, size, hint) };
        let message = format!("{what} is {size} bytes, and {named} is {}; {hint}", self.bytes);
        NativeError::new(ErrorCode::PolicyDenied, message)
    }
}

/// Reads a whole file. A file that is too large is refused before it is read.
pub(super) fn read_all(
    file: File,
    path: &str,
    size: u64,
    limit: ReadLimit,
) -> Result<Vec<u8>, NativeError> {
    let what = format!("`{}`", shown(path));
    if size > limit.bytes as u64 {
        return Err(limit.exceeded(&what, size, "read a part of it with `head` or `tail`"));
    }
    let mut bytes = Vec::with_capacity(size as usize + 1);
    // The file may have grown since, or report size 0, as files in `/proc` do.
    let read = file.take(limit.bytes as u64 + 1).read_to_end(&mut bytes);
    read.map_err(|error| io_error(path, &error))?;
    if bytes.len() > limit.bytes {
        return Err(limit.exceeded(&what, bytes.len() as u64, "it grew while it was read"));
    }
    Ok(bytes)
}

pub(super) fn io_error(path: &str, error: &std::io::Error) -> NativeError {
    match error.raw_os_error() {
        Some(code) => PathError::System {
            path: shown(path),
            errno: rustix::io::Errno::from_raw_os_error(code),
        }
        .into(),
        None => failed(format!("`{}`: {error}", shown(path))),
    }
}

fn decode(bytes: Vec<u8>) -> String {
    String::from_utf8(bytes)
        .unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned())
}

fn first_lines(
    mut file: File,
    path: &str,
    count: usize,
    limit: ReadLimit,
) -> Result<String, NativeError> {
    let mut bytes = Vec::new();
    let mut chunk = vec![0; CHUNK];
    let mut found = 0;
    'reading: loop {
        let read = file.read(&mut chunk).map_err(|error| io_error(path, &error))?;
        if read == 0 {
            // A final newline does not begin another line.
            if bytes.last() == Some(&b'\n') {
                bytes.pop();
            }
            break;
        }
        for &byte in &chunk[..read] {
            found += usize::from(byte == b'\n');
            if found == count {
                break 'reading;
            }
            bytes.push(byte);
        }
        // A single line can be arbitrarily long.
        if bytes.len() > limit.bytes {
            return Err(limit.exceeded("these lines", bytes.len() as u64, "request fewer"));
        }
    }
    if bytes.len() > limit.bytes {
        return Err(limit.exceeded("these lines", bytes.len() as u64, "request fewer"));
    }
    Ok(decode(bytes))
}

fn last_lines(
    mut file: File,
    path: &str,
    size: u64,
    count: usize,
    limit: ReadLimit,
) -> Result<String, NativeError> {
    let mut chunks: Vec<Vec<u8>> = Vec::new();
    let mut position = size;
    let (mut found, mut total) = (0, 0);
    while position > 0 && found < count {
        let length = position.min(CHUNK as u64);
        position -= length;
        let mut chunk = Vec::with_capacity(length as usize);
        file.seek(SeekFrom::Start(position))
            .and_then(|_| file.by_ref().take(length).read_to_end(&mut chunk))
            .map_err(|error| io_error(path, &error))?;
        found += chunk.iter().filter(|byte| **byte == b'\n').count();
        total += chunk.len();
        // The file became shorter after its size was read.
        if chunk.is_empty() {
            break;
        }
        chunks.push(chunk);
        // One chunk more than the limit, because the oldest chunk may contain lines that are not requested.
        if total > limit.bytes + CHUNK {
            return Err(limit.exceeded("these lines", total as u64, "request fewer"));
        }
    }
    chunks.reverse();
    // Decoded as a whole, because a character may be split between two chunks.
    let text = decode(chunks.concat()).replace("\r\n", "\n");
    let lines: Vec<&str> = text.split('\n').collect();
    let text = lines[lines.len().saturating_sub(count)..].join("\n");
    match text.len() > limit.bytes && limit.of_policy.is_some() {
        true => Err(limit.exceeded("these lines", text.len() as u64, "request fewer")),
        false => Ok(text),
    }
}

#[derive(Deserialize)]
struct ReadMultiple {
    paths: Vec<String>,
}

pub(super) fn read_multiple_files(
    workspace: Reach<'_>,
    value: Value,
) -> Result<String, NativeError> {
    let input: ReadMultiple = arguments("filesystem:read_multiple_files", value)?;
    input.check()?;
    let mut out = String::new();
    for (index, path) in input.paths.iter().enumerate() {
        if index > 0 {
            out.push_str("\n---\n");
        }
        let content = open(workspace, path).and_then(|opened| {
            let size = u64::try_from(opened.stat.st_size).unwrap_or(0);
            read_all(File::from(opened.fd), path, size, ReadLimit::of(workspace, RESULT_LIMIT))
        });
        match content {
            Ok(bytes) => out.push_str(&format!("{path}:\n{}\n", decode(bytes))),
            Err(error) => out.push_str(&format!("{path}: Error - {}", error.message)),
        }
        if out.len() > RESULT_LIMIT {
            return Err(too_large("the result", out.len() as u64, "read fewer files at once"));
        }
    }
    Ok(out)
}

#[derive(Deserialize)]
struct OnePath {
    path: String,
}

pub(super) fn get_file_info(workspace: Reach<'_>, value: Value) -> Result<String, NativeError> {
    let input: OnePath = arguments("filesystem:get_file_info", value)?;
    let relative = workspace.relative(&input.path)?;
    // `O_PATH` needs no right to read the file, and has no effect on a FIFO or a device.
    let opened = workspace.open_beneath(&input.path, &relative, OFlags::PATH)?;
    workspace.allow(&input.path, &opened.real, Operation::List)?;
    let wanted = StatxFlags::BASIC_STATS | StatxFlags::BTIME;
    let facts = rustix::fs::statx(opened.fd.as_fd(), "", AtFlags::EMPTY_PATH, wanted)
        .map_err(|errno| PathError::System { path: shown(&input.path), errno })?;
    let kind = FileType::from_raw_mode(u32::from(facts.stx_mode));
    Ok(format!(
        "size: {}\ncreated: {}\nmodified: {}\naccessed: {}\nisDirectory: {}\nisFile: {}\npermissions: {:03o}",
        facts.stx_size,
        date(facts.stx_btime),
        date(facts.stx_mtime),
        date(facts.stx_atime),
        kind == FileType::Directory,
        kind == FileType::RegularFile,
        facts.stx_mode & 0o777,
    ))
}

/// Formats a time like JavaScript's `Date`, in UTC.
fn date(time: StatxTimestamp) -> String {
    let time = DateTime::<Utc>::from_timestamp(time.tv_sec, time.tv_nsec).unwrap_or_default();
    time.format("%a %b %d %Y %H:%M:%S GMT+0000 (Coordinated Universal Time)").to_string()
}
