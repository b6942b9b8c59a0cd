//! The only decision about every call, what it rests on, and what a human is asked.

pub(crate) mod decision;
pub(crate) mod lockfile;
mod look_alike;
pub(crate) mod permissions;
pub(crate) mod question;
pub(crate) mod trust;
