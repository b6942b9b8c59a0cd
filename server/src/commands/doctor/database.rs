//! The database: reachable, safe for its role, migrated, and readable with the master key.

use std::sync::Arc;

use chrono::TimeDelta;
use registry::{DatabaseState, Inspection, RegistryError};
use tokio::runtime::Runtime;

use super::super::report::Report;
use crate::config::Settings;
use crate::database::master_key::ConfiguredKeys;
use crate::database::{Database, programs};

/// The clock difference above which times of keys and tokens are wrong.
const CLOCK_LIMIT: TimeDelta = TimeDelta::seconds(5);

/// Inspects the configured database with the serving role, and with the owner's if it is configured.
pub(super) fn inspect(report: &mut Report, settings: &Settings, runtime: &Runtime) {
    let database = match open(report, settings) {
        Some(Ok(database)) => database,
        Some(Err(error)) => {
            let remedy = "`server.log` in the folder of the database has Postgres' own reason";
            return report.fail("database", format!("{error:#}"), remedy);
        }
        None => return,
    };
    let url = match database.app_url() {
        Ok(url) => url,
        // Reported with the settings.
        Err(_) => return,
    };
    runtime.block_on(async {
        let Some(inspection) = connect(report, &database, url, "PML_DATABASE_URL").await else {
            return;
        };
        match inspection.state().await {
            Ok(state) => {
                let place = match database.is_embedded() {
                    true => format!(
                        "private Postgres {} in {}",
                        state.version,
                        settings.data_dir().display()
                    ),
                    false => format!("your own Postgres {}", state.version),
                };
                report.ok("database", place);
                serving_role(report, &state);
                schema(report, &state, database.is_embedded());
                clock(report, state.clock_ahead);
            }
            Err(error) => {
                return report.fail("database", error.to_string(), "run the command again");
            }
        }
        master_key(report, settings, &inspection, database.is_embedded()).await;
        inspection.close().await;
        if let Some(url) = database.configured_owner_url()
            && let Some(inspection) = connect(report, &database, url, "PML_MIGRATE_URL").await
        {
            match inspection.state().await {
                Ok(state) => owner(report, &state),
                Err(error) => report.fail("owner", error.to_string(), "run the command again"),
            }
            inspection.close().await;
        }
    });
}

/// Opens the database; `None` if there is none yet.
fn open(report: &mut Report, settings: &Settings) -> Option<anyhow::Result<Database>> {
    if settings.is_private() && !Database::exists(settings) {
        match programs::find(settings, &["postgres", "initdb"], programs::OLDEST_MAJOR) {
            Ok(found) => report.ok(
                "database",
                format!(
                    "the first start will create one with Postgres {} in {}",
                    found.major,
                    found.dir.display()
                ),
            ),
            Err(error) => report.fail("database", format!("{error:#}"), "see docs/operating.md"),
        }
        return None;
    }
    Some(Database::open(settings))
}

async fn connect(
    report: &mut Report,
    database: &Database,
    url: String,
    variable: &str,
) -> Option<Inspection> {
    match Inspection::connect(&url).await {
        Ok(inspection) => Some(inspection),
        Err(error) => {
            let error = database.explain(error, variable);
            report.fail(
                "database",
                format!("{error:#}"),
                format!("see {variable} in deploy/README.md"),
            );
            None
        }
    }
}

fn serving_role(report: &mut Report, state: &DatabaseState) {
    let role = &state.role;
    if state.bypasses_policies || state.owns_tables {
        let what =
            if state.bypasses_policies { "bypasses row-level security" } else { "owns tables" };
        report.fail(
            "role",
            format!("`{role}` {what}, so one tenant could read another's rows"),
            "connect as `pml_app`: `alter role pml_app nosuperuser nobypassrls`",
        );
    } else if state.may_create {
        report.warn(
            "role",
            format!("`{role}` may create objects in the schema `public`"),
            format!("as the owner: `revoke create on schema public from {role}, public`"),
        );
    } else {
        report.ok("role", format!("`{role}` owns nothing, and row-level security binds it"));
    }
    if !state.unprotected.is_empty() {
        report.fail(
            "row-level security",
            format!("not enabled and forced on {}", state.unprotected.join(", ")),
            "as the owner: `alter table … enable row level security, force row level security`",
        );
    } else if state.owner.is_some() {
        report.ok("row-level security", "enabled and forced on every table with tenants' rows");
    }
}

fn schema(report: &mut Report, state: &DatabaseState, is_embedded: bool) {
    let (schema, known) = (&state.schema, registry::newest_migration());
    match (schema.missing.len(), schema.unknown.len()) {
        (0, 0) => report.ok("schema", format!("at migration {}, as this program", schema.newest)),
        (0, _) => report.warn(
            "schema",
            format!("at migration {}, newer than this program's {known}", schema.newest),
            "a gateway of the previous release can serve on it; replace this program by the newer one",
        ),
        (_, 0) if is_embedded => report.warn(
            "schema",
            format!("at migration {}, older than this program's {known}", schema.newest),
            "the next start of the gateway migrates it; back up first",
        ),
        (_, 0) => report.fail(
            "schema",
            format!("at migration {}, older than this program's {known}", schema.newest),
            "back up, then run `pml-server migrate`",
        ),
        _ => report.fail(
            "schema",
            format!("it lacks migrations {:?} and has others, {:?}", schema.missing, schema.unknown),
            "it is from another branch of development: restore a backup",
        ),
    }
}

fn clock(report: &mut Report, ahead: TimeDelta) {
    let seconds = format!("{:+.1} s", ahead.as_seconds_f64());
    if ahead.abs() > CLOCK_LIMIT {
        report.warn(
            "clock",
            format!("the database's clock differs from this machine's by {seconds}"),
            "synchronize both with NTP: keys, tokens and sessions expire by them",
        );
    } else {
        report.ok("clock", format!("the database's differs by {seconds}"));
    }
}

async fn master_key(
    report: &mut Report,
    settings: &Settings,
    inspection: &Inspection,
    is_embedded: bool,
) {
    // An invalid key has been reported with the settings.
    let keys =
        ConfiguredKeys::read(settings).and_then(|keys| keys.or_own_of(is_embedded, settings));
    let Ok(keys) = keys else { return };
    let keys = Arc::new(keys.into_keys());
    let fit = match inspection.try_master_keys(&keys).await {
        Ok(fit) => fit,
        // Reported with the schema.
        Err(RegistryError::NotMigrated) => return,
        Err(error) => return report.fail("master key", error.to_string(), "run the command again"),
    };
    let missing = fit.missing.join("`, `");
    let remedy = "set PML_MASTER_KEY to the key that the secrets were stored with, and PML_MASTER_KEY_NEW or _OLD during a rotation";
    match fit.stored.first() {
        None => report.ok("master key", "none is stored, so there are no stored secrets"),
        Some(current) if fit.missing.is_empty() => {
            report
                .ok("master key", format!("`{current}` decrypts its check value in the database"));
        }
        Some(_) if keys.is_empty() && !is_embedded => report.warn(
            "master key",
            format!("`{missing}` is stored and none is configured: stored secrets cannot be read"),
            remedy,
        ),
        Some(_) => report.fail(
            "master key",
            format!("the stored secrets need `{missing}`, which is not configured"),
            remedy,
        ),
    }
}

fn owner(report: &mut Report, state: &DatabaseState) {
    let role = &state.role;
    if state.is_superuser {
        report.warn(
            "owner",
            format!("`{role}` is a superuser, which migrations do not need"),
            "use the role `pml_owner`",
        );
    } else if state.owner.is_some() && !state.owns_tables {
        report.fail(
            "owner",
            format!("`{role}` does not own the tables"),
            "set PML_MIGRATE_URL to the owner's role",
        );
    } else {
        report.ok("owner", format!("`{role}` can migrate"));
    }
}
