//! Black-box tests of both programs, one file per behaviour.

#![expect(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

mod access;
mod adr_hybrid_routing;
mod analyze;
mod approvals;
mod attacks;
mod audit;
mod bombs;
mod capabilities;
mod clients;
mod conformance;
mod credentials;
mod documents;
mod ends;
mod gateway_down;
mod hostile_gateway;
mod idempotency;
mod init;
mod injection;
mod keys;
mod layering;
mod leaks;
mod limits;
mod login;
mod malformed;
mod odd_clients;
mod openapi;
mod operations;
mod outage;
mod passthrough;
mod permissions;
mod plan;
mod programs;
mod rates;
mod registry_http;
mod results;
mod routing;
mod secrets;
mod spike_client_kinds;
mod stdio_protocol;
mod support;
mod tampering;
mod threats;
mod tokens;
mod tool_keys;
