//! Programs of the user's machine: how they are found, what they see of the environment, and how they end with us.

pub mod environment;
pub mod programs;
pub mod supervise;
