//! Timers.

use super::*;
use crate::structure::core::Scalar;

impl Solver<'_> {
    /// Starts a timer: its callback is walked as concurrent code, which may be cleared before it runs.
    pub(super) fn start_timer(&mut self, name: &str, args: &Args) -> Value {
        let callee = self.arg(args, 0);
        let skip = if matches!(name, "setTimeout" | "setInterval") { 2 } else { 1 };
        let given = Args { list: args.list.iter().skip(skip).copied().collect(), rest: args.rest };
        self.keep_given(None, args);
        let cancels = if self.follows(Rule::TimerStopped) { self.time.cancels } else { NONE };
        let many = name == "setInterval";
        let may = cancels != NONE || many;
        // The delay decides what runs before the callback, and what the clock shows in it.
        let delay = if skip == 2 { self.arg(args, 1) } else { Value::UNDEFINED };
        let mut late = self.convert(delay);
        let control = self.control_above(0);
        for deps in [delay.deps, control, self.time.when] {
            late = self.dom.union(late, deps);
        }
        let late = self.dom.sources.used(late);
        let late = if self.follows(Rule::TimerDelay) { late } else { NONE };
        let clock = self.dom.union(self.time.clock, late);
        let timers = self.dom.union(self.time.timers, control);
        self.changed |= clock != self.time.clock || timers != self.time.timers;
        (self.time.clock, self.time.timers) = (clock, timers);
        // No interval runs on when the program has ended, and the delays decide when that is.
        let cancels = if many { self.dom.union(cancels, clock) } else { cancels };
        let before = self.begin_thread(late);
        let at = (self.at, self.end, self.place);
        let is_text = self.dom.shape(callee).refs.is_empty()
            && !matches!(self.dom.shape(callee).only(), Some(Scalar::Undefined));
        // A string is compiled and run as code.
        if is_text {
            self.gap(Code::DynamicEval, About::Change);
        }
        // The program may end before it runs.
        let _ = self.cut_by(self.time.returns, |solver| {
            solver.concurrently(|solver| {
                solver.under(cancels, may, many, |solver| {
                    let _ = solver.call_value(callee, None, &given, false);
                });
            })
        });
        (self.at, self.end, self.place) = at;
        self.threads.left |= self.end_concurrent(&before);
        Value::computed(self.time.timers)
    }

    /// Records that the program may end at a `return` which `deps` decide: no timer runs after that, and no unknown code.
    pub(in crate::structure::solve) fn nothing_after(&mut self, deps: Deps) {
        let before = self.time.returns.unwrap_or(NONE);
        let deps = self.dom.union(before, deps);
        self.changed |= self.time.returns != Some(deps);
        self.time.returns = Some(deps);
    }
}
