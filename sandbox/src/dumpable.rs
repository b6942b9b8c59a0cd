//! Protects a process from inspection by other processes of its user. The host applies it to itself, and every child
//! as a layer of its seal.

use rustix::process::{DumpableBehavior, dumpable_behavior, set_dumpable_behavior};

/// Makes this process write no core file, and keeps other processes of its user from inspecting it.
pub(crate) fn forbid_dumps() -> Result<(), String> {
    set_dumpable_behavior(DumpableBehavior::NotDumpable)
        .map_err(|errno| format!("prctl(DUMPABLE): {errno}"))?;
    match dumpable_behavior() {
        Ok(DumpableBehavior::NotDumpable) => Ok(()),
        _ => Err("the process stayed dumpable".to_owned()),
    }
}
