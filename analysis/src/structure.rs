//! The flow analysis: determines what a program does without running it.
//!
//! The stages: `lower` rewrites the tree into the small language of `core`; `solve` follows that to a fixed
//! point, using the abstract values and objects of `domain` and the descriptions of the engine's functions
//! in `builtins`; `report` converts the result to the public types of `node`. `order` computes the order of
//! the calls.

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
