//! Connects to a database, and finds why it cannot be connected to.

use std::str::FromStr as _;
use std::time::Duration;

use sqlx::postgres::{PgConnectOptions, PgPool, PgPoolOptions};
use sqlx::{ConnectOptions as _, Error};

use crate::RegistryError;

/// How long a request waits for a connection: a dead database must be reported within two seconds.
pub(crate) const ACQUIRE_TIMEOUT: Duration = Duration::from_millis(1_500);
/// The time limit of the attempt that finds the reason.
const LIMIT: Duration = Duration::from_millis(1_500);

/// Parses a URL. The error does not contain it.
pub(crate) fn options(url: &str) -> Result<PgConnectOptions, RegistryError> {
    PgConnectOptions::from_str(url)
        .map_err(|error| RegistryError::Invalid(format!("the database URL: {error}")))
}

/// Opens a single connection, without the time limits of a request.
pub(crate) async fn single(url: &str) -> Result<PgPool, RegistryError> {
    let options = options(url)?;
    let pool = PgPoolOptions::new()
        .max_connections(1)
        .acquire_timeout(ACQUIRE_TIMEOUT)
        .connect_with(options.clone())
        .await;
    match pool {
        Ok(pool) => Ok(pool),
        Err(error) => Err(explain(&options, error).await),
    }
}

/// Returns the error of a first connection with its place and its reason.
///
/// A pool retries until its timeout and does not report the cause, so one more attempt finds it.
pub(crate) async fn explain(options: &PgConnectOptions, error: Error) -> RegistryError {
    let error = match error {
        Error::PoolTimedOut => match tokio::time::timeout(LIMIT, options.connect()).await {
            Ok(Ok(mut connection)) => {
                let is_standby = sqlx::query_scalar("select pg_is_in_recovery()");
                let reason = match is_standby.fetch_one(&mut connection).await {
                    Ok(true) => "it is a standby, which accepts no writes",
                    _ => "all of its connections are in use",
                };
                return no_connection(options, reason.to_owned());
            }
            Ok(Err(error)) => error,
            Err(_) => return no_connection(options, "it does not answer".to_owned()),
        },
        error => error,
    };
    let reason = match &error {
        Error::Io(error) => error.to_string(),
        Error::Tls(error) => error.to_string(),
        Error::Database(refused) => refused.message().to_owned(),
        _ => return error.into(),
    };
    no_connection(options, reason)
}

fn no_connection(options: &PgConnectOptions, reason: String) -> RegistryError {
    let user = options.get_username();
    // Postgres uses the name of the user if no database is named.
    let database = options.get_database().unwrap_or(user);
    let at = match options.get_socket() {
        Some(socket) => format!("in `{}`", socket.display()),
        None => format!("at {}:{}", options.get_host(), options.get_port()),
    };
    RegistryError::NoConnection { place: format!("database `{database}` {at} as `{user}`"), reason }
}
