//! The code of the process that starts the children, which has the keys and the rights of its user. It trusts nothing
//! that a child sends.

mod child_socket;
mod job_pool;
mod peer;
mod pool;
mod privacy;
mod run;
mod self_test;
mod spawner;
mod warm;

pub use job_pool::JobPool;
pub use pool::Pool;
pub use privacy::{give_up_tracing, keep_private, take_variable};
pub use self_test::self_test;
