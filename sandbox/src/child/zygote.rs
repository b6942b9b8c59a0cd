//! A zygote: a sealed child with the engine in it, which never sees a program and forks children that do.
//!
//! A fork costs a fraction of what it costs to start the binary, to seal it and to build the globals. All of
//! that is done once, here; a forked child only closes what is not its own and takes the last layers.

use std::os::fd::OwnedFd;

use rustix::process::{Pid, WaitId, WaitIdOptions, waitid};

use crate::child::descriptors;
use crate::child::engine::Engine;
use crate::child::host_socket::Wire;
use crate::child::process::{EXIT_PANIC, exit};
use crate::child::seal::{self, Filter};
use crate::layer::LayerReport;
use crate::wire::control::{Answer, Ask};
use crate::wire::frame::{self, ToHost, VERSION};

/// The initial state of every forked child.
struct Womb {
    engine: Engine,
    filter: Filter,
    /// The frame by which a child reports that its seal holds.
    ready: Vec<u8>,
}

/// Forks children on request until the host exits. `layers` already hold.
pub(crate) fn serve(control: OwnedFd, layers: Vec<LayerReport>) -> ! {
    let womb = match Womb::new(layers) {
        Ok(womb) => womb,
        Err(message) => refuse(&control, &message),
    };
    while let Some((ask, descriptor)) = Ask::receive(&control) {
        let answered = match ask {
            Ask::Fork => match descriptor {
                Some(socket) => womb.fork(&control, socket),
                None => refused(&control, "no socket came with the question"),
            },
            Ask::Reap(pid) => Answer::Reaped(reap(pid)).send(&control),
        };
        if answered.is_err() {
            break;
        }
    }
    exit(0)
}

/// Answers every request of the host with the reason why there will be no child.
pub(crate) fn refuse(control: &OwnedFd, message: &str) -> ! {
    while Ask::receive(control).is_some() {
        if refused(control, message).is_err() {
            break;
        }
    }
    exit(EXIT_PANIC)
}

fn refused(control: &OwnedFd, message: &str) -> Result<(), rustix::io::Errno> {
    Answer::Refused(message.to_owned()).send(control)
}

fn reap(pid: u32) -> Result<i32, i32> {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
    let status = pid.and_then(|pid| waitid(WaitId::Pid(pid), WaitIdOptions::EXITED).ok().flatten());
    match status {
        Some(status) => match status.terminating_signal() {
            Some(signal) => Err(signal),
            None => Ok(status.exit_status().unwrap_or(EXIT_PANIC)),
        },
        None => Ok(EXIT_PANIC),
    }
}

impl Womb {
    fn new(mut layers: Vec<LayerReport>) -> Result<Womb, String> {
        let engine = Engine::new().map_err(|_| "the engine does not start".to_owned())?;
        let filter = Filter::new()?;
        layers.extend(seal::inner_layers());
        let mut ready = Vec::new();
        frame::write(&mut ready, &ToHost::Ready { version: VERSION, layers: &layers });
        Ok(Womb { engine, filter, ready })
    }

    fn fork(&self, control: &OwnedFd, socket: OwnedFd) -> Result<(), rustix::io::Errno> {
        let parent = rustix::process::getpid();
        #[expect(unsafe_code, reason = "no safe wrapper: the child may do what one thread may")]
        // SAFETY: this process has one thread, so the child finds every lock free.
        let pid = unsafe { libc::fork() };
        match Pid::from_raw(pid) {
            Some(_) if pid < 0 => refused(control, "no process can be forked"),
            Some(_) => Answer::Forked(pid.unsigned_abs()).send(control),
            None => self.born(parent, socket),
        }
    }

    /// The child's life.
    fn born(&self, parent: Pid, socket: OwnedFd) -> ! {
        let wire = match descriptors::only(socket) {
            Ok(socket) => Wire::new(socket),
            Err(_) => exit(EXIT_PANIC),
        };
        self.engine.take(wire);
        if let Err(message) = seal::after_fork(parent, &self.filter) {
            self.engine.say(&ToHost::Unavailable { message: &message });
            exit(EXIT_PANIC)
        }
        self.engine.serve(&self.ready)
    }
}
