//! Processes, read from `/proc`.

use std::collections::HashMap;
use std::fs;

/// A process. Its start time distinguishes it from a later process with the same number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Pid {
    /// The number.
    pub(crate) number: u32,
    started: u64,
}

struct Stat {
    state: char,
    parent: u32,
    started: u64,
}

impl Pid {
    /// Returns the process that has this number now.
    pub(crate) fn of(number: u32) -> Self {
        Self { number, started: stat(number).map_or(0, |stat| stat.started) }
    }

    /// Returns whether the process is running; a zombie is not.
    pub(crate) fn is_alive(self) -> bool {
        stat(self.number).is_some_and(|stat| stat.started == self.started && stat.state != 'Z')
    }

    /// Returns the process and all its descendants.
    pub(crate) fn tree(self) -> Vec<Self> {
        let mut children: HashMap<u32, Vec<u32>> = HashMap::new();
        for entry in fs::read_dir("/proc").expect("/proc is readable").flatten() {
            let Ok(number) = entry.file_name().to_string_lossy().parse::<u32>() else { continue };
            if let Some(stat) = stat(number) {
                children.entry(stat.parent).or_default().push(number);
            }
        }
        let mut tree = vec![self];
        let mut next = 0;
        while let Some(parent) = tree.get(next) {
            let found = children.remove(&parent.number).unwrap_or_default();
            tree.extend(found.into_iter().map(Self::of));
            next += 1;
        }
        tree
    }

    /// Returns the resident memory of the process and all its descendants, in bytes.
    pub(crate) fn tree_memory(self) -> u64 {
        self.tree().into_iter().map(Self::memory).sum()
    }

    /// Returns its resident memory, in bytes.
    pub(crate) fn memory(self) -> u64 {
        self.status("VmRSS:")
    }

    /// Returns its peak resident memory, in bytes.
    pub(crate) fn peak_memory(self) -> u64 {
        self.status("VmHWM:")
    }

    fn status(self, name: &str) -> u64 {
        let status =
            fs::read_to_string(format!("/proc/{}/status", self.number)).unwrap_or_default();
        let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_default();
        line.trim().trim_end_matches(" kB").parse::<u64>().unwrap_or_default() * 1024
    }

    /// Returns the command line, words joined by spaces.
    pub(crate) fn command_line(self) -> String {
        let bytes = fs::read(format!("/proc/{}/cmdline", self.number)).unwrap_or_default();
        String::from_utf8_lossy(&bytes).replace('\0', " ").trim().to_owned()
    }

    /// Sends a signal by its name, such as `KILL`.
    pub(crate) fn signal(self, name: &str) {
        assert!(self.try_signal(name), "cannot send {name} to {}", self.number);
    }

    /// Does the same with a process that may have ended; returns whether it existed.
    pub(crate) fn try_signal(self, name: &str) -> bool {
        let sent = std::process::Command::new("kill")
            .args([format!("-{name}"), self.number.to_string()])
            .stderr(std::process::Stdio::null())
            .status();
        sent.expect("`kill` runs").success()
    }
}

fn stat(number: u32) -> Option<Stat> {
    let text = fs::read_to_string(format!("/proc/{number}/stat")).ok()?;
    // The name is in parentheses and may itself contain parentheses, so the last one counts.
    let after_name = &text[text.rfind(')')? + 1..];
    let fields: Vec<&str> = after_name.split_whitespace().collect();
    Some(Stat {
        state: fields.first()?.chars().next()?,
        parent: fields.get(1)?.parse().ok()?,
        started: fields.get(19)?.parse().ok()?,
    })
}
