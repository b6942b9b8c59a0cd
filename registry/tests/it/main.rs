//! The registry and the launcher of its private Postgres, on a real Postgres.
//!
//! One cluster serves the whole run; each test clones its own database from a migrated template and drops it, even if
//! it panics.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "../../../server/src/database/embedded_postgres.rs"]
pub mod embedded_postgres;

#[path = "../../../tests/src/skipped.rs"]
mod skipped;

mod audit;
mod cancellation;
mod catalog;
mod catalog_scale;
mod classes;
mod cluster;
mod database;
mod discover;
mod entry;
mod entry_cache;
mod executions;
mod idempotency;
mod isolation;
mod keys;
mod launcher;
mod look_alikes;
mod members;
mod migrations;
mod names;
mod outage;
mod projects;
mod publish;
mod publish_server;
mod published;
mod rates;
mod resolve;
mod rotation;
mod routes;
mod secrets;
mod seed;
mod servers;
mod traces;
mod visibility;
