//! Decides about every call: the decision, the rules and records behind it, and the questions to the user.

pub(crate) mod changed_tool;
pub(crate) mod decision;
pub(crate) mod lockfile;
mod look_alike;
pub(crate) mod permissions;
pub(crate) mod program_lock;
pub(crate) mod question;
pub(crate) mod shortened;
pub(crate) mod trust;
