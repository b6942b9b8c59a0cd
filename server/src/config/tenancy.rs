//! `pml-server orgs|projects|members …`: organisations, their projects and their members.

use clap::{Args, Subcommand};
use protocol::Scope;
use registry::{Principal, Role};

use super::credentials::parse_principal;

/// `pml-server orgs …`
#[derive(Debug, Subcommand)]
pub(crate) enum OrgsCommand {
    /// List the organisations, including deleted ones, whose names are never reused.
    List {
        /// Print JSON: `[{"name","created_at","deleted_at"}]`.
        #[arg(long)]
        json: bool,
    },
    /// Delete an organisation with all its projects, permanently.
    ///
    /// Its API keys are revoked, its members lose their roles, its stored data is deleted, and its public entries
    /// answer 410.
    Delete {
        /// The organisation.
        #[arg(value_parser = parse_org)]
        org: String,
        /// Confirm the deletion.
        #[arg(long, required = true)]
        yes: bool,
    },
}

/// `pml-server projects …`
#[derive(Debug, Subcommand)]
pub(crate) enum ProjectsCommand {
    /// List the projects of an organisation.
    List {
        /// The organisation.
        #[arg(long, value_parser = parse_org)]
        org: String,
        /// Print JSON: `[{"name","scope","created_at"}]`.
        #[arg(long)]
        json: bool,
    },
    /// Create a project, and its organisation if it does not exist; the same as `scope create`.
    Create {
        /// `ORG.PROJECT`, for example `acme.web`.
        scope: Scope,
    },
    /// Delete a project permanently.
    ///
    /// Its API keys are revoked, its members lose their roles, its stored data is deleted, its public entries answer
    /// 410, and its name is never reused.
    Delete {
        /// `ORG.PROJECT`.
        scope: Scope,
        /// Confirm the deletion.
        #[arg(long, required = true)]
        yes: bool,
    },
}

/// `pml-server members …`
#[derive(Debug, Subcommand)]
#[command(after_help = "\
A role limits the rights of its principal's API keys and tokens; `owner` and `admin` manage the organisation:
  owner   like admin; also creates owners and deletes projects
  admin   manages API keys, members and projects
  member  runs programs, reads, publishes
  viewer  reads
A principal that was never a member is limited only by the rights of its keys.

Examples:
  pml-server members add --org acme --role owner alice@acme.example
  pml-server members add --org acme --project web --role viewer bob@acme.example
  pml-server members remove --org acme bob@acme.example")]
pub(crate) enum MembersCommand {
    /// List the members of an organisation and of its projects, or of one project.
    List {
        /// The organisation or project.
        #[command(flatten)]
        place: Place,
        /// Print JSON: `[{"principal","role","project","created_at","updated_at"}]`.
        #[arg(long)]
        json: bool,
    },
    /// Assign a role to a principal, or change it.
    Add {
        /// The organisation or project.
        #[command(flatten)]
        place: Place,
        /// The role; `owner` is for organisations only.
        #[arg(long, value_name = "owner|admin|member|viewer", value_parser = parse_role)]
        role: Role,
        /// The principal of the member's API keys or tokens.
        #[arg(value_parser = parse_principal)]
        principal: Principal,
        /// Print JSON.
        #[arg(long)]
        json: bool,
    },
    /// Remove a principal's role; without a project, in the organisation and all its projects.
    ///
    /// Its API keys and tokens are refused from then on, by every gateway on this database.
    Remove {
        /// The organisation or project.
        #[command(flatten)]
        place: Place,
        /// The principal.
        #[arg(value_parser = parse_principal)]
        principal: Principal,
    },
}

/// An organisation, or one project of it.
#[derive(Debug, Args)]
pub(crate) struct Place {
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
    /// Returns an error for an invalid project name.
    pub(crate) fn scope(&self) -> anyhow::Result<Option<Scope>> {
        let scope = self.project.as_deref().map(|name| Scope::new(&self.org, name)).transpose();
        scope.map_err(|error| anyhow::anyhow!("--project: {error}"))
    }
}

fn parse_org(text: &str) -> Result<String, String> {
    // The project name is a placeholder: only the name of the organisation is checked.
    Scope::new(text, "x").map(|scope| scope.org().to_owned()).map_err(|error| error.to_string())
}

fn parse_role(text: &str) -> Result<Role, String> {
    text.parse().map_err(|_| "expected owner, admin, member or viewer".to_owned())
}
