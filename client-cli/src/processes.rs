//! Programs on the user's machine: their lookup, their environment, and their supervision.

pub(crate) mod confinement;
pub(crate) mod environment;
pub(crate) mod programs;
pub(crate) mod supervise;
