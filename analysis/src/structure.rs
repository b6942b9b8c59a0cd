//! What a program does, as far as it can be told without running it.

mod build;
mod builtins;
mod core;
mod domain;
mod lower;
mod node;
mod order;
mod report;
mod solve;

pub(crate) use build::build;
pub(crate) use node::parameter;
pub use node::{Argument, Node, NodeKind, PathStep, StaticStructure, Task};
pub(crate) use order::order;
