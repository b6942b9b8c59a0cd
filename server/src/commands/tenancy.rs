//! `pml-server orgs|projects|members`: tenants, for the operator.

use std::fmt::Write as _;

use anyhow::Context as _;
use registry::{Membership, Operator, ProjectRecord, RegistryError};

use super::table::table;
use crate::config::{MembersCommand, OrgsCommand, Place, ProjectsCommand};
use crate::database::Database;

/// Runs a command on organisations and returns its output.
pub(super) async fn orgs(database: &Database, command: &OrgsCommand) -> anyhow::Result<String> {
    let operator = database.operator().await?;
    match command {
        OrgsCommand::List { json } => {
            let orgs = operator.orgs().await.context("could not read the organisations")?;
            if *json {
                return Ok(serde_json::to_string_pretty(&orgs)? + "\n");
            }
            let mut out = String::new();
            for org in orgs {
                let state = org
                    .deleted_at
                    .map_or_else(String::new, |at| format!("  deleted {}", at.date_naive()));
                // Not escaped: the grammar of names allows no control characters.
                writeln!(out, "{}{state}", org.name)?;
            }
            Ok(out)
        }
        // The command line requires `--yes`, so its value is always true.
        OrgsCommand::Delete { org, yes: _ } => {
            operator.delete_org(org).await.map_err(|error| match error {
                RegistryError::NotFound(_) => anyhow::anyhow!(
                    "there is no organisation `{org}`; `pml-server orgs list` lists the organisations"
                ),
                other => anyhow::Error::new(other).context("could not delete the organisation"),
            })?;
            Ok(format!("Organisation `{org}` was deleted, with all its projects.\n"))
        }
    }
}

/// Runs a command on projects and returns its output.
pub(super) async fn projects(
    database: &Database,
    command: &ProjectsCommand,
) -> anyhow::Result<String> {
    match command {
        ProjectsCommand::List { org, json } => {
            let projects = all_projects(&database.operator().await?, org).await?;
            if *json {
                return Ok(serde_json::to_string_pretty(&projects)? + "\n");
            }
            Ok(projects.iter().map(|project| format!("{}\n", project.scope)).collect())
        }
        ProjectsCommand::Create { scope } => super::create_scope(database, scope).await,
        ProjectsCommand::Delete { scope, yes: _ } => {
            let operator = database.operator().await?;
            operator.delete_project(scope).await.map_err(|error| match error {
                RegistryError::NotFound(_) => anyhow::anyhow!(
                    "there is no project `{scope}`; `pml-server projects list --org {}` lists the projects",
                    scope.org()
                ),
                other => anyhow::Error::new(other).context("could not delete the project"),
            })?;
            Ok(format!("Project `{scope}` was deleted; its name is never reused.\n"))
        }
    }
}

/// Runs a command on members and returns its output.
pub(super) async fn members(
    database: &Database,
    command: &MembersCommand,
) -> anyhow::Result<String> {
    let operator = database.operator().await?;
    match command {
        MembersCommand::List { place, json } => {
            let members = all_members(&operator, place).await?;
            if *json {
                return Ok(serde_json::to_string_pretty(&members)? + "\n");
            }
            let rows: Vec<[String; 3]> = members
                .into_iter()
                .map(|member| {
                    let project = member.project.unwrap_or_else(|| "*".to_owned());
                    [member.role.to_string(), project, member.principal]
                })
                .collect();
            Ok(table(["ROLE", "PROJECT", "PRINCIPAL"], &rows))
        }
        MembersCommand::Add { place, role, principal, json } => {
            let scope = place.scope()?;
            let given = operator.set_member(&place.org, scope.as_ref(), principal, *role).await;
            let (membership, _) = given.map_err(|error| explain(error, place))?;
            if *json {
                return Ok(serde_json::to_string_pretty(&membership)? + "\n");
            }
            Ok(format!("`{principal}` now has the role `{role}` in `{}`.\n", shown(place)))
        }
        MembersCommand::Remove { place, principal } => {
            let scope = place.scope()?;
            let removed = operator.remove_member(&place.org, scope.as_ref(), principal).await;
            removed.map_err(|error| match error {
                // The registry names what it did not find: the principal, or the organisation or project.
                RegistryError::NotFound(name) if name == principal.as_str() => {
                    anyhow::anyhow!("`{principal}` is not a member of `{}`", shown(place))
                }
                other => explain(other, place),
            })?;
            Ok(format!("`{principal}` is no longer a member of `{}`.\n", shown(place)))
        }
    }
}

fn shown(place: &Place) -> String {
    match &place.project {
        Some(project) => format!("{}.{project}", place.org),
        None => place.org.clone(),
    }
}

fn explain(error: RegistryError, place: &Place) -> anyhow::Error {
    match error {
        RegistryError::NotFound(_) => anyhow::anyhow!(
            "`{}` does not exist or was deleted; `pml-server projects create ORG.PROJECT` creates a project",
            shown(place)
        ),
        other => anyhow::Error::new(other).context("could not change the members"),
    }
}

async fn all_members(operator: &Operator, place: &Place) -> anyhow::Result<Vec<Membership>> {
    let scope = place.scope()?;
    let mut members = Vec::new();
    let mut cursor = None;
    loop {
        let page = operator.members(&place.org, scope.as_ref(), cursor.as_deref()).await;
        let page = page.map_err(|error| explain(error, place))?;
        members.extend(page.items);
        cursor = page.next_cursor;
        if cursor.is_none() {
            return Ok(members);
        }
    }
}

async fn all_projects(operator: &Operator, org: &str) -> anyhow::Result<Vec<ProjectRecord>> {
    let mut projects = Vec::new();
    let mut cursor = None;
    loop {
        let page = operator.projects(org, cursor.as_deref()).await;
        let page = page.context("could not read the projects")?;
        projects.extend(page.items);
        cursor = page.next_cursor;
        if cursor.is_none() {
            return Ok(projects);
        }
    }
}
