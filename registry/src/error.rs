//! The errors of the registry, by what the caller can do about them.

use protocol::{Fqdn, NameError};

/// Why the registry could not execute a request.
#[derive(Debug, thiserror::Error)]
pub enum RegistryError {
    /// The database does not answer; the same request may succeed later.
    #[error("the database is unavailable")]
    Unavailable(#[source] sqlx::Error),
    /// The connection cannot be opened.
    #[error("cannot connect to {place}: {reason}")]
    NoConnection {
        /// Database, address and role; never the password.
        place: String,
        /// The reason, from the operating system or the database.
        reason: String,
    },
    /// The caller has no object of that name.
    #[error("`{0}` is not in the registry")]
    NotFound(String),
    /// Several projects of the organisation have the short name.
    #[error("`{name}` is ambiguous; use one of {}", candidates.join(", "))]
    Ambiguous {
        /// The short name.
        name: String,
        /// The full names.
        candidates: Vec<String>,
    },
    /// The object of that name was deleted, and the caller could see it.
    #[error("`{0}` was deleted")]
    Gone(String),
    /// The caller may see the object, but may not do this to it.
    #[error("{0}")]
    NotAllowed(String),
    /// The name is pinned to a content that is no longer there.
    #[error("the content of `{}` has changed; it is now `{current}`", current.unpinned())]
    HashMismatch {
        /// The name with the hash of the present content.
        current: Fqdn,
    },
    /// The stored content does not have the hash that it was stored with.
    #[error("the stored content of `{0}` does not match its recorded hash; it is not served")]
    IntegrityMismatch(Fqdn),
    /// Something of that name exists already.
    #[error("{0}")]
    Conflict(String),
    /// A value cannot be stored, or cannot be searched for.
    #[error("{0}")]
    Invalid(String),
    /// A name breaks the grammar.
    #[error(transparent)]
    Name(#[from] NameError),
    /// The credential is malformed, unknown, expired or revoked; callers do not learn which.
    #[error("the credential is not valid")]
    InvalidCredential,
    /// No master key is configured, so secrets can be neither sealed nor opened.
    #[error(
        "this gateway cannot store secrets, because it has no master key; set `PML_MASTER_KEY` or `PML_MASTER_KEY_FILE`"
    )]
    NoMasterKey,
    /// Secrets are encrypted under a master key that is not configured.
    #[error(
        "the secrets in this database are encrypted under master key `{id}`, which is not configured"
    )]
    WrongMasterKey {
        /// The name of the key.
        id: String,
    },
    /// A stored secret, or the data key that encrypts it, was changed or moved in the database.
    #[error("the stored secret `{0}` cannot be decrypted")]
    UnreadableSecret(String),
    /// A stored secret may not be sent to the requested host.
    #[error("the stored secret `{name}` may not be sent to `{host}`")]
    NotForHost {
        /// The variable.
        name: String,
        /// The host.
        host: String,
    },
    /// The tenant may not do this.
    #[error("the role or tenant may not do this")]
    Denied(#[source] sqlx::Error),
    /// The database does not have this program's schema.
    #[error("the database is not migrated; run `pml-server migrate`")]
    NotMigrated,
    /// Row-level security does not bind the role.
    #[error(
        "role `{role}` owns tables or bypasses row-level security; connect as `pml_app` to serve"
    )]
    UnsafeRole {
        /// The role's name.
        role: String,
    },
    /// A migration failed.
    #[error("cannot migrate the database: {0}")]
    Migrate(#[from] sqlx::migrate::MigrateError),
    /// The database answered with an error that should not happen.
    #[error("the database rejected a query")]
    Database(#[source] sqlx::Error),
}

impl From<sqlx::Error> for RegistryError {
    fn from(error: sqlx::Error) -> Self {
        use sqlx::Error;
        match &error {
            Error::Io(_)
            | Error::Tls(_)
            | Error::PoolTimedOut
            | Error::PoolClosed
            | Error::WorkerCrashed
            | Error::BeginFailed => Self::Unavailable(error),
            Error::Database(refused) => match refused.code().as_deref() {
                // Connection failures, a lack of connections, memory or disk, shutdown and start-up.
                Some(code) if ["08", "53", "57P"].iter().any(|class| code.starts_with(class)) => {
                    Self::Unavailable(error)
                }
                // Time-outs, a lock that was not given, an idle transaction that was ended.
                Some("57014" | "55P03" | "25P03") => Self::Unavailable(error),
                // A server that only reads, such as a standby: after a failover, another connection leads to the new
                // primary. Transactions in each other's way; a disk that fails.
                Some("25006" | "40001" | "40P01" | "58030") => Self::Unavailable(error),
                // A policy refused the row, or a trigger protects what never changes.
                Some("42501") => Self::Denied(error),
                // A table, a function or a column is missing: the schema is older than the program.
                Some("42P01" | "42883" | "42703") => Self::NotMigrated,
                // A unique constraint also sees rows that the policies hide, so the message names
                // none.
                Some("23505") => Self::Conflict("it exists already".to_owned()),
                // Tenants' rows refer to their project; `project_is_open` raises the same code if
                // that was deleted.
                Some("23503") => Self::NotFound("the scope".to_owned()),
                // A check constraint, or text that Postgres cannot store, such as a NUL.
                Some("23514" | "22P05" | "22P02" | "22021") => {
                    Self::Invalid(format!("the value cannot be stored: {}", refused.message()))
                }
                _ => Self::Database(error),
            },
            _ => Self::Database(error),
        }
    }
}
