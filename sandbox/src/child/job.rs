//! The main loop of a job's child: it runs one function on one input after the other.

use std::panic::catch_unwind;

use crate::child::host_socket::HostSocket;
use crate::child::process::{EXIT_PANIC, exit};
use crate::job::Job;
use crate::wire::inbox::HEADER;

/// Runs the job on every input, until the host kills this process or exits.
pub(crate) fn serve(mut socket: HostSocket, job: Job, input_bytes: usize) -> ! {
    // Sends the report of the seal, which is still in the buffer.
    socket.flush();
    loop {
        let output = loop {
            match socket.inbox().next(input_bytes) {
                // Caught here: further unwinding would close the socket, and a sealed thread may not close anything.
                Ok(Some(body)) => break catch_unwind(|| (job.run)(body)),
                Ok(None) => {
                    socket.fill(None);
                }
                Err(_) => exit(EXIT_PANIC),
            }
        };
        let Ok(output) = output else { exit(EXIT_PANIC) };
        let Ok(length) = u32::try_from(output.len()) else { exit(EXIT_PANIC) };
        let out = socket.out();
        out.reserve_exact(HEADER + output.len());
        out.extend_from_slice(&length.to_le_bytes());
        out.extend_from_slice(&output);
        // Freed before a write that may have to wait: the address space is limited, and the buffer
        // has a copy.
        drop(output);
        socket.flush();
    }
}
