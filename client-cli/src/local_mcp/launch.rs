//! What a server is started from: a program of this machine, a package that is installed first, or a connection.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use execution::mcp_process::{
    self, Executed, NotStarted, Seal, Session, Slot, StartFailure, start_in,
};
use execution::packages::{NotInstalled, Pinned, Request};
use execution::processes::programs::Program;
use tokio::sync::OwnedMutexGuard;

use super::remote::{self, Prepared};
use super::{InUse, LocalMcpError, Shared};

/// What a start needs: a command, or an HTTP connection.
pub(super) enum Start {
    Program(Box<Launch>),
    Connection(Box<Prepared>),
}

/// The command, environment and folder of a server.
pub(super) struct Launch {
    pub(super) source: Source,
    pub(super) variables: BTreeMap<String, String>,
    pub(super) folder: PathBuf,
}

/// Where the program of a server comes from.
pub(super) enum Source {
    /// It is on this machine.
    Program {
        program: Program,
        arguments: Vec<String>,
        /// How it is confined; `None` if it is not.
        seal: Option<Seal>,
    },
    /// From a package, which is installed first.
    Package {
        request: Request,
        seal: Seal,
        /// The server's name in the lock.
        locked_as: String,
    },
}

/// Starts a server and puts it into its slot, after the delay that earlier failures require.
pub(super) async fn start(
    server: String,
    shared: Arc<Shared>,
    launch: Start,
    slot: OwnedMutexGuard<Slot>,
) -> Result<InUse, LocalMcpError> {
    let starting = async {
        match launch {
            Start::Program(launch) => run(&shared, *launch).await,
            Start::Connection(prepared) => remote::connect(&prepared, shared.timing.start).await,
        }
    };
    let idle = shared.timing.idle;
    let started = start_in(server.clone(), slot, idle, &shared.closing, Box::pin(starting)).await;
    started.map_err(|error| match error {
        NotStarted::BackingOff { failures, wait_s, last } => {
            LocalMcpError::BackingOff { server, failures, wait_s, last }
        }
        NotStarted::Closing => LocalMcpError::Cancelled { server },
        NotStarted::Failed(StartFailure { refused: Some(error), .. }) => {
            LocalMcpError::NotAllowed(error)
        }
        NotStarted::Failed(StartFailure { reason, stderr, refused: None }) => {
            LocalMcpError::Start { server, reason, stderr }
        }
    })
}

async fn run(shared: &Shared, launch: Launch) -> Result<Session, StartFailure> {
    let resolved = resolve(shared, launch).await;
    let (executed, seal) = resolved.map_err(|error| {
        let (reason, refused) = match error {
            NotInstalled::Failed(reason) => (reason, None),
            NotInstalled::Refused(error) => (error.message.clone(), Some(error)),
        };
        StartFailure { reason, stderr: String::new(), refused }
    })?;
    mcp_process::start(&shared.starter, &executed, seal.as_ref()).await
}

/// Determines what is executed. A package that is not there is installed first, which has a time limit of its own.
async fn resolve(
    shared: &Shared,
    launch: Launch,
) -> Result<(Executed, Option<Seal>), NotInstalled> {
    let Launch { source, variables, folder } = launch;
    let (mut in_use, mut hidden) = (None, &[][..]);
    let (program, arguments, seal) = match source {
        Source::Program { program, arguments, seal } => (program, arguments, seal),
        Source::Package { request, seal, locked_as } => {
            let pinned = Pinned { pins: shared.pins.get().map(|pins| &**pins), server: &locked_as };
            let installer = shared.installer(&seal.packages);
            let (file, used) = installer.install(&request, pinned).await?;
            in_use = Some(Arc::new(used));
            hidden = request.hidden();
            let file = file.to_string_lossy();
            let program = shared.environment.programs().find(&file, &folder);
            let program = program.map_err(|error| {
                let folder = seal.packages.display();
                format!("{error}; to install all packages again, delete `{folder}`")
            })?;
            (program, request.arguments, Some(seal))
        }
    };
    let writable = shared.workspace.root_paths();
    Ok((Executed { program, arguments, variables, folder, writable, hidden, in_use }, seal))
}
