//! The code of child processes. A child that has read a program or the input of a job may be under an attacker's
//! control, so the host trusts nothing that it sends.

mod descriptors;
mod engine;
mod heap;
mod host_socket;
mod job;
mod main;
mod probe;
mod process;
mod random;
mod realm;
mod seal;
mod stack;
mod timers;
mod url;
mod zygote;

pub use main::{child_main_if_requested, marks_child};
