//! The gateway: its HTTP interface, its operation, and its behaviour under load and faults.

mod ambiguous_requests;
mod backup;
mod connections;
mod database_faults;
mod database_outage;
mod database_stalls;
mod drives;
mod executions;
mod inspection;
mod large_answers;
mod malformed;
mod memory;
mod metrics;
mod noisy_neighbour;
mod openapi;
mod operations;
mod rate_limits;
mod replicas;
mod stdio_servers;
mod synced_tools;
mod tls;
mod traces;
