//! Programs on the user's machine: their lookup, their environment, and their supervision.

pub(crate) mod environment;
