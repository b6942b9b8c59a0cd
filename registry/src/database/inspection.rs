//! What a connection can say about its database, before anything relies on it.

use std::sync::Arc;
use std::time::Instant;

use chrono::{TimeDelta, Utc};
use sqlx::postgres::{PgPool, PgSslMode};

use crate::database::connect;
use crate::{MIGRATOR, MasterKeys, RegistryError};

/// The parts of a database URL that may be shown: everything except the password.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DatabaseUrl {
    /// The role.
    pub role: String,
    /// Whether the connection stays on this machine.
    pub is_local: bool,
    /// Whether the connection is refused unless it is encrypted and the server's certificate is verified.
    pub verifies_server: bool,
}

impl DatabaseUrl {
    /// Parses a URL.
    ///
    /// # Errors
    /// Returns [`RegistryError::Invalid`] with the reason, which does not contain the URL.
    pub fn parse(url: &str) -> Result<Self, RegistryError> {
        let options = connect::options(url)?;
        let host = options.get_host();
        let is_loopback = host == "localhost"
            || host.parse().is_ok_and(|address: std::net::IpAddr| address.is_loopback());
        Ok(Self {
            role: options.get_username().to_owned(),
            // A host that begins with a slash is the folder of a socket.
            is_local: options.get_socket().is_some() || host.starts_with('/') || is_loopback,
            verifies_server: matches!(
                options.get_ssl_mode(),
                PgSslMode::VerifyCa | PgSslMode::VerifyFull
            ),
        })
    }
}

/// How a database's schema compares with the migrations of this program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SchemaState {
    /// The newest migration of the database; 0 if it has none.
    pub newest: i64,
    /// The migrations of this program that it lacks.
    pub missing: Vec<i64>,
    /// Its migrations that this program does not know.
    pub unknown: Vec<i64>,
}

/// The state of a database, as one role sees it.
#[derive(Debug, Clone)]
pub struct DatabaseState {
    /// The version of the server, for example `15.18`.
    pub version: String,
    /// Its major version.
    pub major: u32,
    /// The role of the connection.
    pub role: String,
    /// Whether the role is a superuser.
    pub is_superuser: bool,
    /// Whether row-level security does not bind the role.
    pub bypasses_policies: bool,
    /// Whether the role owns tables, itself or through another role.
    pub owns_tables: bool,
    /// Whether the role may create objects in the schema.
    pub may_create: bool,
    /// The owner of the tables; `None` without tables.
    pub owner: Option<String>,
    /// Whether the serving role exists and is bound by row-level security; `None` if it does not exist.
    pub serving_role_is_bound: Option<bool>,
    /// Whether the schema has neither tables nor functions.
    pub is_empty: bool,
    /// The tables with tenants' rows whose row-level security is not enabled and forced.
    pub unprotected: Vec<String>,
    /// The migrations.
    pub schema: SchemaState,
    /// How far the database's clock is ahead of this machine's.
    pub clock_ahead: TimeDelta,
}

/// What the configured master keys can do with a database.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MasterKeyFit {
    /// The names of the database's master keys, the current one first.
    pub stored: Vec<String>,
    /// Those of them that the configured keys do not include, or whose check value they do not open.
    pub missing: Vec<String>,
}

/// One connection that only reads.
#[derive(Debug, Clone)]
pub struct Inspection {
    pool: PgPool,
}

impl Inspection {
    /// Connects with any role.
    ///
    /// # Errors
    /// Returns [`RegistryError::Unavailable`] or [`RegistryError::NoConnection`] when the database does not answer.
    pub async fn connect(url: &str) -> Result<Self, RegistryError> {
        Ok(Self { pool: connect::single(url).await? })
    }

    /// Reads the state of the database.
    ///
    /// # Errors
    /// Returns [`RegistryError::Unavailable`] when the database does not answer.
    pub async fn state(&self) -> Result<DatabaseState, RegistryError> {
        let asked = Instant::now();
        let now = sqlx::query_scalar!(r#"select clock_timestamp() as "now!""#)
            .fetch_one(&self.pool)
            .await?;
        // The clock was read about half a round trip ago.
        let way = TimeDelta::from_std(asked.elapsed() / 2).unwrap_or_default();
        let clock_ahead = now + way - Utc::now();
        let server = sqlx::query!(
            r#"select current_setting('server_version') as "version!",
                current_setting('server_version_num')::int / 10000 as "major!",
                r.rolname::text as "role!", r.rolsuper as "is_superuser!",
                (r.rolsuper or r.rolbypassrls) as "bypasses!",
                exists (
                    select from pg_class c join pg_namespace n on n.oid = c.relnamespace
                    where n.nspname = 'public' and c.relkind in ('r', 'p')
                        and pg_has_role(r.oid, c.relowner, 'usage')
                ) as "owns!",
                has_schema_privilege(r.oid, 'public', 'create') as "may_create!",
                (
                    select pg_get_userbyid(c.relowner)::text
                    from pg_class c where c.oid = to_regclass('public._sqlx_migrations')
                ) as owner,
                (
                    select not (s.rolsuper or s.rolbypassrls) from pg_roles s where s.rolname = 'pml_app'
                ) as serving_role_is_bound
            from pg_roles r where r.rolname = current_user"#
        )
        .fetch_one(&self.pool)
        .await?;
        Ok(DatabaseState {
            version: server.version,
            major: u32::try_from(server.major).unwrap_or_default(),
            role: server.role,
            is_superuser: server.is_superuser,
            bypasses_policies: server.bypasses,
            owns_tables: server.owns,
            may_create: server.may_create,
            schema: self.schema(server.owner.is_some()).await?,
            owner: server.owner,
            serving_role_is_bound: server.serving_role_is_bound,
            is_empty: self.is_empty().await?,
            unprotected: self.unprotected().await?,
            clock_ahead,
        })
    }

    /// Returns whether the schema has nothing but what extensions have made.
    async fn is_empty(&self) -> Result<bool, RegistryError> {
        let has = sqlx::query_scalar!(
            r#"select exists (
                select from pg_class c
                where c.relnamespace = 'public'::regnamespace and not exists (
                    select from pg_depend d where d.classid = 'pg_class'::regclass
                        and d.objid = c.oid and d.deptype = 'e')
            ) or exists (
                select from pg_proc p
                where p.pronamespace = 'public'::regnamespace and not exists (
                    select from pg_depend d where d.classid = 'pg_proc'::regclass
                        and d.objid = p.oid and d.deptype = 'e')
            ) as "has!""#
        )
        .fetch_one(&self.pool)
        .await?;
        Ok(!has)
    }

    /// Returns the tables with a column `org` that are not protected; a partition is protected by its table.
    async fn unprotected(&self) -> Result<Vec<String>, RegistryError> {
        let names = sqlx::query_scalar!(
            r#"select c.relname::text as "name!" from pg_class c
            where c.relnamespace = 'public'::regnamespace and c.relkind in ('r', 'p')
                and not c.relispartition
                and not (c.relrowsecurity and c.relforcerowsecurity)
                and exists (
                    select from pg_attribute a
                    where a.attrelid = c.oid and a.attname = 'org' and not a.attisdropped)
            order by 1"#
        );
        Ok(names.fetch_all(&self.pool).await?)
    }

    async fn schema(&self, is_migrated: bool) -> Result<SchemaState, RegistryError> {
        let mut applied: Vec<i64> = Vec::new();
        if is_migrated {
            // Not a checked query: the migrator creates this table, not a migration.
            let versions = "select version from _sqlx_migrations where success order by version";
            applied = sqlx::query_scalar(versions).fetch_all(&self.pool).await?;
        }
        let known: Vec<i64> = MIGRATOR.iter().map(|migration| migration.version).collect();
        let missing = known.iter().filter(|version| !applied.contains(version));
        let unknown = applied.iter().filter(|version| !known.contains(version));
        Ok(SchemaState {
            newest: applied.last().copied().unwrap_or_default(),
            missing: missing.copied().collect(),
            unknown: unknown.copied().collect(),
        })
    }

    /// Tries the master keys on what the database has stored: each of its keys must open its check value. Changes
    /// nothing, unlike [`Registry::with_master_keys`](crate::Registry::with_master_keys).
    ///
    /// # Errors
    /// Returns [`RegistryError::NotMigrated`] without the table, and [`RegistryError::Unavailable`] when the database
    /// does not answer.
    pub async fn try_master_keys(
        &self,
        keys: &Arc<MasterKeys>,
    ) -> Result<MasterKeyFit, RegistryError> {
        let rows = sqlx::query!(
            "select id, check_value from master_keys order by is_current desc, created_at desc, id"
        )
        .fetch_all(&self.pool)
        .await?;
        let is_missing =
            |id: &str, check_value: &[u8]| !keys.get(id).is_some_and(|key| key.opens(check_value));
        let missing = rows.iter().filter(|row| is_missing(&row.id, &row.check_value));
        let missing = missing.map(|row| row.id.clone()).collect();
        Ok(MasterKeyFit { stored: rows.into_iter().map(|row| row.id).collect(), missing })
    }

    /// Closes the connection.
    pub async fn close(&self) {
        self.pool.close().await;
    }
}

/// Returns the newest migration of this program.
pub fn newest_migration() -> i64 {
    MIGRATOR.iter().map(|migration| migration.version).max().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_shows_its_role_and_whether_it_is_verified() {
        let parse = |url: &str| DatabaseUrl::parse(url).unwrap();
        let local = parse("postgres://pml_app:canary@127.0.0.1/pml");
        assert_eq!(
            (local.role.as_str(), local.is_local, local.verifies_server),
            ("pml_app", true, false)
        );
        assert!(!format!("{local:?}").contains("canary"));
        assert!(parse("postgres://a@localhost/pml?host=/run/pg").is_local);
        assert!(!parse("postgres://a@db.example/pml").is_local);
        assert!(parse("postgres://a@db.example/pml?sslmode=verify-full").verifies_server);
        assert!(!parse("postgres://a@db.example/pml?sslmode=require").verifies_server);
        let wrong = DatabaseUrl::parse("postgres://u:canary@:x/").unwrap_err().to_string();
        assert!(!wrong.contains("canary"), "{wrong}");
    }
}
