//! A zygote: a sealed child with a ready engine, which never sees a program and forks the children that run one.
//!
//! A fork costs a fraction of starting the binary, sealing it and building the globals. All of that is done once, here;
//! a forked child only closes the descriptors of its zygote and applies the last layers. A zygote never starts a
//! thread: a fork copies only the calling thread, and a lock that another one held would stay locked in the child.

use std::os::fd::OwnedFd;

use rustix::process::{Pid, WaitId, WaitIdOptions, waitid};

use crate::child::descriptors;
use crate::child::engine::Engine;
use crate::child::host_socket::HostSocket;
use crate::child::process::{EXIT_PANIC, exit};
use crate::child::seal::{self, Filter};
use crate::layer::LayerReport;
use crate::wire::control::{Reply, Request};
use crate::wire::frame::{self, ToHost, VERSION};

/// The state that every forked child inherits, built before the first fork.
struct ForkTemplate {
    engine: Engine,
    filter: Filter,
    /// The frame by which a child reports that its seal holds.
    ready: Vec<u8>,
}

/// Forks children on request until the host exits. `layers` already hold.
pub(crate) fn serve(control: OwnedFd, layers: Vec<LayerReport>) -> ! {
    let template = match ForkTemplate::new(layers) {
        Ok(template) => template,
        Err(message) => refuse(&control, &message),
    };
    while let Some((request, descriptor)) = Request::receive(&control) {
        let replied = match request {
            Request::Fork { warm_up } => match descriptor {
                Some(socket) => template.fork(&control, socket, warm_up),
                None => refused(&control, "no socket came with the request"),
            },
            Request::Reap(pid) => Reply::Reaped(reap(pid)).send(&control),
        };
        if replied.is_err() {
            break;
        }
    }
    exit(0)
}

/// Answers every request of the host with the reason why no child can be forked.
pub(crate) fn refuse(control: &OwnedFd, message: &str) -> ! {
    while Request::receive(control).is_some() {
        if refused(control, message).is_err() {
            break;
        }
    }
    exit(EXIT_PANIC)
}

fn refused(control: &OwnedFd, message: &str) -> Result<(), rustix::io::Errno> {
    Reply::Refused(message.to_owned()).send(control)
}

fn reap(pid: u32) -> Result<i32, i32> {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
    // The child is already dead, so this does not block.
    let status = pid.and_then(|pid| waitid(WaitId::Pid(pid), WaitIdOptions::EXITED).ok().flatten());
    match status {
        Some(status) => match status.terminating_signal() {
            Some(signal) => Err(signal),
            None => Ok(status.exit_status().unwrap_or(EXIT_PANIC)),
        },
        None => Ok(EXIT_PANIC),
    }
}

impl ForkTemplate {
    fn new(mut layers: Vec<LayerReport>) -> Result<ForkTemplate, String> {
        let engine = Engine::new().map_err(|_| "the engine does not start".to_owned())?;
        let filter = Filter::of_fork()?;
        layers.extend(seal::inner_layers());
        let mut ready = Vec::new();
        frame::write(&mut ready, &ToHost::Ready { version: VERSION, layers: &layers });
        // Last, because what is allocated and freed later would leave new gaps.
        engine.fill_gaps();
        Ok(ForkTemplate { engine, filter, ready })
    }

    fn fork(
        &self,
        control: &OwnedFd,
        socket: OwnedFd,
        warm_up: bool,
    ) -> Result<(), rustix::io::Errno> {
        // Read before the fork, because the child compares its parent with it.
        let parent = rustix::process::getpid();
        #[expect(unsafe_code, reason = "no safe wrapper: the child may do what one thread may")]
        // SAFETY: this process has one thread, so the child finds every lock free.
        let pid = unsafe { libc::fork() };
        match Pid::from_raw(pid) {
            Some(_) if pid < 0 => refused(control, "no process can be forked"),
            // The number is valid for the host, too: leaving the process namespace moved only the
            // children. Returning drops the socket, so that the host sees its end close when the
            // child exits.
            Some(_) => Reply::Forked(pid.unsigned_abs()).send(control),
            None => self.run_child(parent, socket, warm_up),
        }
    }

    /// The main function of a forked child.
    fn run_child(&self, parent: Pid, socket: OwnedFd, warm_up: bool) -> ! {
        let socket = match descriptors::take_forked_socket(socket) {
            Ok(socket) => HostSocket::new(socket),
            Err(_) => exit(EXIT_PANIC),
        };
        // Before the last layers, so that a layer that fails can be reported.
        self.engine.connect(socket);
        if let Err(message) = seal::after_fork(parent, &self.filter) {
            self.engine.send(&ToHost::Unavailable { message: &message });
            exit(EXIT_PANIC)
        }
        self.engine.serve(&self.ready, warm_up)
    }
}
