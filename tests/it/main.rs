//! Black-box tests of both programs, one file per behaviour, in folders by subject.

#![expect(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

#[path = "../src/skipped.rs"]
mod skipped;

mod cli;
mod gateway;
mod identity;
mod mcp;
mod programs;
mod project;
mod proxy;
mod registry;
mod release;
mod support;
