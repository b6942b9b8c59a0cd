//! The gateway as its operator sees it: the interface, its load and its faults.

mod connections;
mod large_answers;
mod malformed;
mod memory;
mod noisy;
mod openapi;
mod operations;
mod outage;
mod rates;
mod singular;
mod stalls;
