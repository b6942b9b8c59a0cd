//! The start of a child, from its first instruction until it is sealed and waits for its first message.

use rustix::process::Pid;

use crate::child::descriptors::take_descriptors;
use crate::child::host_socket::HostSocket;
use crate::child::process::{
    EXIT_NOT_A_CHILD, EXIT_PANIC, exit, limit_malloc_arenas, prepare_process,
};
use crate::child::{job, seal, zygote};
use crate::job::Job;
use crate::layer::LayerReport;
use crate::limits::JOB_LIFETIME_CPU;
use crate::wire::frame::{self, ToHost, VERSION};
use crate::wire::start::{CHILD_MARK, JOB, ZYGOTE};

/// Becomes a sandbox child if this process was started as one, and then never returns.
///
/// Call it first in `main`, with every job that the binary offers, before any thread is started: the kernel lets only a
/// process of one thread enter a user namespace, and a zygote may fork safely only while it has one thread.
pub fn child_main_if_requested(jobs: &[Job]) {
    let mut arguments = std::env::args().skip(1);
    if arguments.next().as_deref() == Some(CHILD_MARK) {
        let rest: Vec<String> = arguments.collect();
        child_main(&rest, jobs);
    }
}

/// Returns, from the first argument, whether a process is a sandbox child, for decisions that come before `main`.
pub fn marks_child(first_argument: &[u8]) -> bool {
    first_argument == CHILD_MARK.as_bytes()
}

/// The kind of child that the host requested.
enum Role {
    Zygote,
    Job { job: Job, address_space: u64, stack: usize, input_bytes: usize },
}

fn child_main(arguments: &[String], jobs: &[Job]) -> ! {
    // Destructors that run on a heap which a program has corrupted are attack surface, so a panic exits at once and
    // nothing unwinds. Only a job may unwind.
    std::panic::set_hook(Box::new(|_| exit(EXIT_PANIC)));
    // Before the arguments are parsed, because a refusal needs the socket.
    let socket = match take_descriptors() {
        Ok(socket) => socket,
        Err(_) => exit(EXIT_NOT_A_CHILD),
    };
    let (host, role) = match parse(arguments, jobs) {
        Ok(parsed) => parsed,
        Err(message) => refuse(HostSocket::new(socket), &message),
    };
    let prepared = prepare_process();
    match role {
        Role::Zygote => {
            // A separate session: the scheduler divides processor time between sessions first, so programs neither
            // slow down their host nor wait for its other work. A kernel without such groups ignores it.
            let _ = rustix::process::setsid();
            let sealed = prepared.and_then(|()| {
                // Blocking reads, because a zygote only waits for the next request.
                rustix::io::ioctl_fionbio(&socket, false).map_err(|e| format!("ioctl: {e}"))?;
                seal::apply_to_zygote(host)
            });
            match sealed {
                Ok(layers) => zygote::serve(socket, layers),
                Err(message) => zygote::refuse(&socket, &message),
            }
        }
        Role::Job { job, address_space, stack, input_bytes } => {
            let socket = HostSocket::new(socket);
            let sealed =
                prepared.and_then(|()| seal::apply_outer(host, address_space, JOB_LIFETIME_CPU));
            let layers = match sealed {
                Ok(layers) => layers,
                Err(message) => refuse(socket, &message),
            };
            limit_malloc_arenas();
            // A job runs no program, so its heap is sound when it panics. The panic is caught, and its message has no
            // reader.
            std::panic::set_hook(Box::new(|_| {}));
            // A separate thread, because its stack size can be chosen. It starts before the last layers, which forbid
            // threads.
            let started = std::thread::Builder::new().stack_size(stack).spawn(move || {
                let socket = finish_seal(socket, layers);
                job::serve(socket, job, input_bytes)
            });
            match started {
                Ok(thread) => {
                    // The thread never returns, so if this does, the thread has panicked.
                    let _ = thread.join();
                    exit(EXIT_PANIC)
                }
                Err(_) => exit(EXIT_NOT_A_CHILD),
            }
        }
    }
}

/// Applies the last layers and reports to the host which ones hold.
fn finish_seal(mut socket: HostSocket, mut layers: Vec<LayerReport>) -> HostSocket {
    match seal::apply_inner() {
        Ok(inner) => layers.extend(inner),
        Err(message) => refuse(socket, &message),
    }
    frame::write(socket.out(), &ToHost::Ready { version: VERSION, layers: &layers });
    socket
}

fn refuse(mut socket: HostSocket, message: &str) -> ! {
    frame::write(socket.out(), &ToHost::Unavailable { message });
    socket.flush();
    exit(EXIT_NOT_A_CHILD)
}

fn parse(arguments: &[String], jobs: &[Job]) -> Result<(Pid, Role), String> {
    let bad = || "the host started this child with arguments it does not know".to_owned();
    let [host, kind, rest @ ..] = arguments else { return Err(bad()) };
    let host = host.parse().ok().and_then(Pid::from_raw).ok_or_else(bad)?;
    match (kind.as_str(), rest) {
        (ZYGOTE, []) => Ok((host, Role::Zygote)),
        (JOB, [name, address_space, stack, input_bytes]) => {
            let job = *jobs
                .iter()
                .find(|job| job.name == name)
                .ok_or_else(|| format!("this binary registers no job `{name}`"))?;
            let role = Role::Job {
                job,
                address_space: address_space.parse().map_err(|_| bad())?,
                stack: stack.parse().map_err(|_| bad())?,
                input_bytes: input_bytes.parse().map_err(|_| bad())?,
            };
            Ok((host, role))
        }
        _ => Err(bad()),
    }
}
