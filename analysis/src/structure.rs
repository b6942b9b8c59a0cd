//! What a program does, as far as it can be told without running it.
//!
//! Two analyses stand here, and whatever either of them finds is told. `build` walks over the tree; its
//! tools, gaps and nodes are the ones that are told. The other is read in the order in which a program
//! goes through it: `lower` spells the tree out in the small language of `core`; `domain` has what is
//! known of values and objects, `builtins` what the engine's own functions do; `solve` follows the
//! program to a fixed point; `report` lays what was found over what `build` tells.

mod build;
mod builtins;
mod core;
mod domain;
mod lower;
mod node;
mod order;
mod report;
mod solve;

pub(crate) use node::parameter;
pub use node::{Argument, Node, NodeKind, PathStep, StaticStructure, Task};
pub(crate) use order::order;
pub(crate) use report::build;
pub use solve::Rule;
pub(crate) use solve::forgetting;
