//! `pml-server orgs|projects|members …`: organisations, their projects and their members.

use clap::{Args, Subcommand};
use protocol::Scope;
use registry::{Principal, Role};

use super::credentials::parse_principal;

/// `pml-server orgs …`
#[derive(Debug, Subcommand)]
pub enum OrgsCommand {
    /// List the organisations, deleted ones too: their names are never given again.
    List {
        /// Print JSON: `[{"name","created_at","deleted_at"}]`.
        #[arg(long)]
        json: bool,
    },
    /// Delete an organisation with all its projects, for good.
    ///
    /// Its keys and members may do nothing from then on, what it stored is gone, and its public entries answer 410.
    Delete {
        /// The organisation.
        #[arg(value_parser = parse_org)]
        org: String,
        /// Say that you mean it.
        #[arg(long, required = true)]
        yes: bool,
    },
}

/// `pml-server projects …`
#[derive(Debug, Subcommand)]
pub enum ProjectsCommand {
    /// List the projects of an organisation.
    List {
        /// The organisation.
        #[arg(long, value_parser = parse_org)]
        org: String,
        /// Print JSON: `[{"name","scope","created_at"}]`.
        #[arg(long)]
        json: bool,
    },
    /// Make a project, and its organisation where that is missing; the same as `scope create`.
    Create {
        /// `ORG.PROJECT`, for example `acme.web`.
        scope: Scope,
    },
    /// Delete a project for good.
    ///
    /// Its keys and members may do nothing from then on, what it stored is gone, its public entries answer 410, and
    /// its name is never given again.
    Delete {
        /// `ORG.PROJECT`.
        scope: Scope,
        /// Say that you mean it.
        #[arg(long, required = true)]
        yes: bool,
    },
}

/// `pml-server members …`
#[derive(Debug, Subcommand)]
#[command(after_help = "\
A role bounds what the keys and tokens of its principal may do, and `owner` and `admin` manage the organisation:
  owner   all that an admin may; makes owners, deletes projects
  admin   manages keys, members and projects
  member  runs programs, reads, publishes
  viewer  reads
A principal that never was a member is bound by its keys alone.

Examples:
  pml-server members add --org acme --role owner alice@acme.example
  pml-server members add --org acme --project web --role viewer bob@acme.example
  pml-server members remove --org acme bob@acme.example")]
pub enum MembersCommand {
    /// List the members of an organisation and of its projects, or of one project.
    List {
        /// Of what.
        #[command(flatten)]
        place: Place,
        /// Print JSON: `[{"principal","role","project","created_at","updated_at"}]`.
        #[arg(long)]
        json: bool,
    },
    /// Give a principal a role, or another one.
    Add {
        /// Where.
        #[command(flatten)]
        place: Place,
        /// The role; `owner` is one of an organisation.
        #[arg(long, value_name = "owner|admin|member|viewer", value_parser = parse_role)]
        role: Role,
        /// Who: the principal of its keys, or of its tokens.
        #[arg(value_parser = parse_principal)]
        principal: Principal,
        /// Print JSON.
        #[arg(long)]
        json: bool,
    },
    /// Take a principal's role away; without a project, in the organisation and all its projects.
    ///
    /// Its keys and tokens are refused from then on, on every gateway on this database.
    Remove {
        /// Where.
        #[command(flatten)]
        place: Place,
        /// Who.
        #[arg(value_parser = parse_principal)]
        principal: Principal,
    },
}

/// An organisation, or one project of it.
#[derive(Debug, Args)]
pub struct Place {
    /// The organisation.
    #[arg(long, value_parser = parse_org)]
    pub org: String,
    /// One project of it.
    #[arg(long)]
    pub project: Option<String>,
}

impl Place {
    /// Returns the project, as a scope.
    ///
    /// # Errors
    /// Returns an error for what is no name of a project.
    pub fn scope(&self) -> anyhow::Result<Option<Scope>> {
        let scope = self.project.as_deref().map(|name| Scope::new(&self.org, name)).transpose();
        scope.map_err(|error| anyhow::anyhow!("--project: {error}"))
    }
}

fn parse_org(text: &str) -> Result<String, String> {
    // Any project will do to try the name of the organisation.
    Scope::new(text, "x").map(|scope| scope.org().to_owned()).map_err(|error| error.to_string())
}

fn parse_role(text: &str) -> Result<Role, String> {
    text.parse().map_err(|_| "expected owner, admin, member or viewer".to_owned())
}
