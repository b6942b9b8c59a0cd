//! What a program does, as far as it can be told without running it.
//!
//! The parts are read in the order in which a program goes through them: `lower` spells the tree out in
//! the small language of `core`; `domain` has what is known of values and objects, `builtins` what the
//! engine's own functions do; `solve` follows the program to a fixed point; `report` puts what was found
//! into the form that people see. `order` tells in which order the calls happen.

mod builtins;
mod core;
mod domain;
mod lower;
mod node;
mod order;
mod report;
mod solve;

pub use builtins::is_engine_function;
pub(crate) use node::parameter;
pub use node::{Argument, Node, NodeKind, PathStep, StaticStructure, Task};
pub(crate) use order::order;
pub(crate) use report::build;
pub use solve::Rule;
pub(crate) use solve::forgetting;
