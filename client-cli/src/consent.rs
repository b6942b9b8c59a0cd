//! The only decision about every call, what it rests on, and what a human is asked.

pub mod decision;
pub mod lockfile;
mod look_alike;
pub mod permissions;
pub mod question;
pub mod trust;
