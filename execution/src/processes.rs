//! Programs of this machine: their lookup, what they may reach, and their supervision.

pub mod confinement;
pub mod links;
pub mod programs;
pub(crate) mod search_path;
pub mod supervise;
pub mod variables;
