//! The gateway as its operator sees it: the interface, its load and its faults.

mod ambiguous_requests;
mod connections;
mod database_outage;
mod database_stalls;
mod large_answers;
mod malformed;
mod memory;
mod noisy_neighbour;
mod openapi;
mod operations;
mod rate_limits;
