//! What is done with a program, and with one call of a tool.

pub mod calls;
pub mod capabilities;
pub mod discover;
pub mod execute;
mod failure;
pub mod refusal;
pub mod result;
