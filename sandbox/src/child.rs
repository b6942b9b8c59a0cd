//! What runs in a child. It has the program, or the input of a job, in its memory, so the host trusts none of it.

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
