//! Tests of the sandbox with real children, sealed as in production.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

mod containment;
mod host_setup;
mod hosts;
mod jobs;
mod limits;
mod malicious_zygote;
mod probe;
mod programs;
mod realm;
mod repeats;
mod results;
mod seal;
mod stats;
mod support;

use libtest_mimic::{Arguments, Trial};

fn main() {
    malicious_zygote::act_as_malicious_zygote_if_requested();
    sandbox::child_main_if_requested(&jobs::JOBS);
    let mut rest = std::env::args().skip(1);
    if rest.next().as_deref() == Some("__host") {
        return hosts::run_as_other_host(&rest.next().unwrap_or_default());
    }
    let arguments = Arguments::from_args();
    let mut trials: Vec<Trial> = Vec::new();
    trials.extend(programs::trials());
    trials.extend(limits::trials());
    trials.extend(realm::trials());
    trials.extend(repeats::trials());
    trials.extend(results::trials());
    trials.extend(seal::trials());
    trials.extend(containment::trials());
    trials.extend(jobs::trials());
    trials.extend(stats::trials());
    libtest_mimic::run(&arguments, trials).exit();
}
