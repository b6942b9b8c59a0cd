//! The settings of `stdio` servers that run on the gateway.

use clap::{Args, Subcommand};
use protocol::Fqdn;
use sandbox::Bounds;

const MIB: u64 = 1024 * 1024;

/// Settings of the processes of `stdio` servers.
#[derive(Debug, Clone, Args)]
pub(crate) struct StdioSettings {
    /// The maximum number of `stdio` servers that run at the same time, of all tenants; 0 runs none.
    #[arg(
        id = "stdio_processes",
        long = "stdio-processes",
        env = "PML_STDIO_PROCESSES",
        default_value = "32",
        value_name = "N"
    )]
    pub processes: u16,

    /// The maximum number of `stdio` servers of one project that run at the same time.
    #[arg(
        id = "stdio_tenant_processes",
        long = "stdio-tenant-processes",
        env = "PML_STDIO_TENANT_PROCESSES",
        default_value = "8",
        value_name = "N"
    )]
    pub tenant_processes: u16,

    /// The memory of a `stdio` server, in MiB: of each of its processes, and of all of them together.
    #[arg(
        id = "stdio_memory",
        long = "stdio-memory",
        env = "PML_STDIO_MEMORY_MB",
        default_value = "1024",
        value_name = "MIB",
        value_parser = clap::value_parser!(u32).range(64..)
    )]
    pub memory: u32,

    /// What a `stdio` server may store, in MiB: for its project, and temporarily.
    #[arg(
        id = "stdio_folder",
        long = "stdio-folder",
        env = "PML_STDIO_FOLDER_MB",
        default_value = "1024",
        value_name = "MIB",
        value_parser = clap::value_parser!(u32).range(1..)
    )]
    pub folder: u32,

    /// How many seconds a `stdio` server without calls keeps running.
    #[arg(
        id = "stdio_idle_seconds",
        long = "stdio-idle-seconds",
        env = "PML_STDIO_IDLE_SECONDS",
        default_value = "300",
        value_name = "SECONDS",
        value_parser = clap::value_parser!(u32).range(1..=86_400)
    )]
    pub idle_seconds: u32,
}

impl StdioSettings {
    /// Returns what a server may use.
    pub(crate) fn bounds(&self) -> Bounds {
        Bounds {
            memory: u64::from(self.memory) * MIB,
            // Calls end after 30 s. More than this is a process that computes without a call.
            cpu_seconds: 600,
            file: 256 * MIB,
            folder: u64::from(self.folder) * MIB,
            descriptors: 256,
            processes: 32,
        }
    }
}

/// `pml-server stdio …`
#[derive(Debug, Subcommand)]
pub(crate) enum StdioCommand {
    /// List the `stdio` servers of the catalog: what is installed on this gateway, and where each runs.
    List {
        /// Print JSON: `[{"server","installed","version","routing"}]`.
        #[arg(long)]
        json: bool,
    },
    /// Install the package of a server on this gateway, in exact versions with their hashes.
    ///
    /// Needs `npm` or `python3`, and the package registry. Calls need neither. Then `pml-server routing set NAME server`
    /// routes the server to the gateways.
    Install {
        /// The server, for example `pml.mcp.memory`.
        server: Fqdn,
    },
    /// Remove a server from this gateway; what it remembers of tenants is kept.
    Remove {
        /// The server.
        server: Fqdn,
    },
}
