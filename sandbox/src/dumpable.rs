//! Closes a process to the other processes of its user: the host itself, and every child as one of its layers.

use rustix::process::{DumpableBehavior, dumpable_behavior, set_dumpable_behavior};

/// No core file, and no other process of this user may inspect this one.
pub(crate) fn forbid_dumps() -> Result<(), String> {
    set_dumpable_behavior(DumpableBehavior::NotDumpable)
        .map_err(|errno| format!("prctl(DUMPABLE): {errno}"))?;
    match dumpable_behavior() {
        Ok(DumpableBehavior::NotDumpable) => Ok(()),
        _ => Err("the process stayed dumpable".to_owned()),
    }
}
