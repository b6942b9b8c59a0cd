//! x
use analysis as _; use sandbox as _;
fn main(){}
