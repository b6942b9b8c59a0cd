//! Executes programs and single tool calls.

pub(crate) mod calls;
pub(crate) mod capabilities;
pub(crate) mod discover;
pub(crate) mod execute;
pub(crate) mod refusal;
pub(crate) mod result;
