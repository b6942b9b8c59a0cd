//! Finds and kills every descendant of this process.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use rustix::process::{Pid, PidfdFlags, Signal, WaitId, WaitIdOptions, WaitOptions};

/// Kills every descendant and returns when none is left.
///
/// This process is a subreaper: a descendant whose parent dies becomes its child. So repeating the walk also finds
/// processes that were forked during it.
pub(super) fn kill_all() {
    loop {
        for pid in descendants() {
            kill(pid);
        }
        loop {
            match rustix::process::wait(WaitOptions::NOHANG) {
                Ok(Some(_)) | Err(rustix::io::Errno::INTR) => {}
                Ok(None) => break,
                // There are no children left.
                Err(_) => return,
            }
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Reaps children that have exited, except `program`, whose exit code is still needed.
pub(super) fn reap_except(program: Pid) {
    let children = parents().into_iter().filter(|(_, parent)| *parent == own_pid());
    for (pid, _) in children {
        if let Some(pid) = Pid::from_raw(pid).filter(|pid| *pid != program) {
            let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG;
            // One by one: to wait for any child could take the exit code of `program`.
            let _ = rustix::process::waitid(WaitId::Pid(pid), options);
        }
    }
}

/// Returns the descendants of this process; not all of them if there are more than `most`.
pub(super) fn up_to(most: u32) -> Vec<i32> {
    let mut left = vec![own_pid()];
    let mut found = Vec::new();
    while let Some(pid) = left.pop() {
        let children = children(pid);
        found.extend_from_slice(&children);
        if found.len() > most as usize {
            break;
        }
        left.extend(children);
    }
    found
}

/// Returns the children of a process, as each of its threads has them: unlike a walk over all processes, this is cheap.
fn children(pid: i32) -> Vec<i32> {
    let Ok(threads) = std::fs::read_dir(format!("/proc/{pid}/task")) else { return Vec::new() };
    let texts = threads
        .flatten()
        .filter_map(|thread| std::fs::read_to_string(thread.path().join("children")).ok());
    texts
        .flat_map(|text| {
            text.split_whitespace().filter_map(|pid| pid.parse().ok()).collect::<Vec<_>>()
        })
        .collect()
}

/// Kills a process only if it still is a descendant: its pid may have been reused since it was read.
fn kill(pid: i32) {
    // Opened before the check, so that the signal goes to the process that was checked, or to none.
    let Some(handle) = Pid::from_raw(pid)
        .and_then(|pid| rustix::process::pidfd_open(pid, PidfdFlags::empty()).ok())
    else {
        return;
    };
    if descendants().contains(&pid) {
        let _ = rustix::process::pidfd_send_signal(&handle, Signal::KILL);
    }
}

fn own_pid() -> i32 {
    rustix::process::getpid().as_raw_nonzero().get()
}

fn descendants() -> HashSet<i32> {
    let parents = parents();
    let mut found = HashSet::from([own_pid()]);
    loop {
        let before = found.len();
        for (pid, parent) in &parents {
            if found.contains(parent) {
                found.insert(*pid);
            }
        }
        if found.len() == before {
            break;
        }
    }
    found.remove(&own_pid());
    found
}

/// Returns the parent of every process.
fn parents() -> HashMap<i32, i32> {
    let Ok(processes) = std::fs::read_dir("/proc") else { return HashMap::new() };
    processes
        .flatten()
        .filter_map(|entry| {
            let pid: i32 = entry.file_name().to_str()?.parse().ok()?;
            // A process that exits during the walk is skipped. The next walk finds its children.
            let stat = std::fs::read_to_string(entry.path().join("stat")).ok()?;
            // The name in parentheses may itself contain parentheses.
            let mut fields = stat.rsplit_once(')')?.1.split_whitespace();
            let state = fields.next()?;
            let parent: i32 = fields.next()?.parse().ok()?;
            (state != "X").then_some((pid, parent))
        })
        .collect()
}
