//! Programs of the user's machine: how they are found, what they see of the environment, and how they end with us.

pub(crate) mod environment;
pub(crate) mod programs;
pub(crate) mod supervise;
