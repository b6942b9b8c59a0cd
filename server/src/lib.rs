//! The PML gateway.
//!
//! It authenticates a caller, analyses the submitted program before anything
//! runs, resolves every tool in the caller's scope, and either runs the program
//! in a sealed sandbox or hands it to the caller's machine. It is also the
//! registry at `/mcp/<fqdn>`.
//!
//! It never runs a program that it did not parse, never calls a tool that the
//! analysis did not declare, and never answers with another tenant's rows. SQL
//! lives in `registry`, the analysis in `analysis`, containment in `sandbox`.

pub mod admission;
pub mod analyser;
pub mod commands;
pub mod config;
pub mod connections;
pub mod database;
pub mod error;
pub mod execution;
pub mod http;
mod http_client;
pub mod identity;
pub mod proxy;
pub mod publish;
pub mod state;
pub mod telemetry;
pub mod tools;
pub mod upstreams;
