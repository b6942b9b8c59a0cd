//! Programs: semantics, where they run, names, limits and attacks.

mod attacks;
mod bombs;
mod bundle;
mod cancel_storm;
mod cleanup;
mod hybrid_routing;
mod injection;
mod limits;
mod model_programs;
mod name_resolution;
mod results;
mod semantics;
mod storms;
pub(crate) mod tampering;
mod upstream_faults;
