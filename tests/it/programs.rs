//! What programs mean, where they run, and what stops them.

mod attacks;
mod bombs;
mod bundle;
mod ends;
mod hybrid_routing;
mod injection;
mod limits;
mod meaning;
mod names;
mod results;
pub(crate) mod tampering;
mod written;
