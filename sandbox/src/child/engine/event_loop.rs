//! The event loop: runs the engine's jobs, delivers the host's answers, and fires timers.

use rquickjs::promise::PromiseState;
use rquickjs::{Persistent, Promise, Value};

use super::fault::{Fault, failure};
use super::{Engine, HOST_FRAME};
use crate::child::process::{EXIT_PANIC, exit};
use crate::outcome::FailureKind;
use crate::wire::frame::{self, FromHost, ToHost};

/// The number of jobs between two checks of the CPU clock. A single long job is stopped by the interrupt handler.
const JOBS_PER_CLOCK_CHECK: u32 = 32;

impl Engine {
    /// Runs jobs until a promise is settled, and returns its value.
    pub(super) fn run_until_settled(
        &self,
        promise: &Persistent<Promise<'static>>,
    ) -> Result<Persistent<Value<'static>>, Fault> {
        loop {
            self.run_jobs()?;
            if let Some(result) = self.settled(promise) {
                return result;
            }
            // One by one, with all jobs in between: the order of a program's steps must not depend on how many answers
            // arrived at once.
            if self.deliver_event()? {
                continue;
            }
            if self.shared.in_flight.get() == 0 && self.shared.timers.borrow().is_empty() {
                return Err(failure(
                    FailureKind::Deadlock,
                    "DeadlockError",
                    "the program waits for something that can never happen: no tool call, timer or job is left",
                ));
            }
            self.wait();
        }
    }

    /// Runs jobs until no call is in flight and only repeating timers are left.
    pub(super) fn run_until_idle(&self) -> Result<(), Fault> {
        loop {
            self.run_jobs()?;
            // Answers may have arrived together with the one that ended the program.
            if self.deliver_frame()? {
                continue;
            }
            if self.shared.in_flight.get() == 0 && !self.shared.timers.borrow().has_one_shot() {
                return Ok(());
            }
            if self.deliver_event()? {
                continue;
            }
            // This cannot wait forever: an answer is outstanding, or a timer is set.
            self.wait();
        }
    }

    /// Passes the next event to the program: an answer, or a timer that is due. Returns whether there was one.
    fn deliver_event(&self) -> Result<bool, Fault> {
        // On a repeatable clock, the times order the events: a timer that is due before an answer fires before it.
        if self.shared.timers.borrow().is_repeatable() && self.fire_due()? {
            return Ok(true);
        }
        Ok(self.deliver_frame()? || self.fire_due()?)
    }

    /// Waits until something arrives, or until a timer is due.
    fn wait(&self) {
        let (announced, timeout) = {
            let mut timers = self.shared.timers.borrow_mut();
            (timers.announce(), timers.timeout())
        };
        let mut socket = self.shared.socket.borrow_mut();
        if let Some(at_ms) = announced {
            frame::write(socket.out(), &ToHost::Timer { at_ms });
        }
        // The calls that the program made are still in the buffer.
        socket.flush();
        socket.fill(timeout);
    }

    /// Fires the next timer, if it is due.
    fn fire_due(&self) -> Result<bool, Fault> {
        let due = self.shared.timers.borrow_mut().take_due();
        due.map_or(Ok(false), |id| self.fire(id).map(|()| true))
    }

    fn run_jobs(&self) -> Result<(), Fault> {
        let mut until_check = JOBS_PER_CLOCK_CHECK;
        loop {
            match self.runtime.execute_pending_job() {
                Ok(false) => break,
                Ok(true) => {}
                Err(job) => {
                    return Err(job.0.with(|ctx| {
                        let thrown = ctx.catch();
                        self.describe(&ctx, &thrown, FailureKind::Exception)
                    }));
                }
            }
            until_check -= 1;
            if until_check == 0 {
                until_check = JOBS_PER_CLOCK_CHECK;
                if self.budget.is_spent() {
                    break;
                }
            }
        }
        // The interrupt handler may have noticed it within a job. A program that catches the
        // engine's error must not continue.
        if self.budget.exceeded.get() { Err(self.out_of_cpu(None)) } else { Ok(()) }
    }

    fn fire(&self, id: u64) -> Result<(), Fault> {
        self.context.with(|ctx| {
            #[expect(clippy::cast_precision_loss, reason = "ids are small")]
            self.realm
                .fire
                .clone()
                .restore(&ctx)
                .and_then(|fire| fire.call::<_, ()>((id as f64,)))
                .map_err(|error| self.caught(&ctx, &error, FailureKind::Exception))
        })
    }

    /// Takes the next frame that has arrived, and passes an answer to the program; returns whether there was a frame.
    fn deliver_frame(&self) -> Result<bool, Fault> {
        self.context.with(|ctx| {
            let mut socket = self.shared.socket.borrow_mut();
            // The host is trusted, so a frame that cannot be read is a broken stream.
            let arrived = socket.inbox().next(HOST_FRAME).unwrap_or_else(|_| exit(EXIT_PANIC));
            let Some(body) = arrived else { return Ok(false) };
            let (id, result) = match frame::read_from_host(body) {
                Ok(FromHost::RpcResult { id, result }) => (id, result),
                Ok(FromHost::Time(at_ms)) => {
                    self.shared.timers.borrow_mut().grant(at_ms);
                    return Ok(true);
                }
                _ => exit(EXIT_PANIC),
            };
            self.shared.timers.borrow_mut().answered();
            // Parsed before the socket is released, because the text lies in its inbox.
            let result = result.map(|value| ctx.json_parse(value.get()));
            // Released first: `settle` can run code of the program, such as an inherited `then`, which borrows the
            // socket to send a call.
            drop(socket);
            #[expect(clippy::cast_precision_loss, reason = "ids are small")]
            let id = id as f64;
            let settled: rquickjs::Result<bool> = (|| {
                let settle = self.realm.settle.clone().restore(&ctx)?;
                match result {
                    Ok(value) => settle.call((id, true, value?)),
                    Err(thrown) => {
                        settle.call((id, false, (), thrown.name, thrown.message, thrown.code))
                    }
                }
            })();
            match settled {
                Ok(known) => {
                    let answered = u64::from(known);
                    self.shared.in_flight.set(self.shared.in_flight.get() - answered);
                    Ok(true)
                }
                Err(error) => Err(self.caught(&ctx, &error, FailureKind::Exception)),
            }
        })
    }

    /// Returns the value of a promise once it is settled.
    fn settled(
        &self,
        promise: &Persistent<Promise<'static>>,
    ) -> Option<Result<Persistent<Value<'static>>, Fault>> {
        self.context.with(|ctx| {
            let promise = match promise.clone().restore(&ctx) {
                Ok(promise) => promise,
                Err(error) => return Some(Err(self.caught(&ctx, &error, FailureKind::Exception))),
            };
            match promise.state() {
                PromiseState::Pending => None,
                PromiseState::Resolved => {
                    let value = promise.result::<Value<'_>>().and_then(Result::ok)?;
                    Some(Ok(Persistent::save(&ctx, value)))
                }
                PromiseState::Rejected => {
                    // Reading the result throws the reason, which makes it the pending exception.
                    let _ = promise.result::<Value<'_>>();
                    let thrown = ctx.catch();
                    Some(Err(self.describe_thrown(&ctx, &thrown)))
                }
            }
        })
    }
}
