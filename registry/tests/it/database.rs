//! A database for one test.

use std::sync::LazyLock;
use std::thread;

use registry::{Operator, Registry, RegistryError, Tenant};
use sqlx::postgres::PgConnection;
use sqlx::{AssertSqlSafe, Connection as _, Executor as _, Row as _};

use crate::cluster;

/// The migrated and seeded databases that tests clone.
static TEMPLATE: LazyLock<Templates> = LazyLock::new(|| {
    blocking(async {
        for name in ["migrated", "seeded"] {
            create(name, "template0").await;
            let operator = Operator::connect(&url("pml_owner", name)).await.expect("the owner");
            operator.migrate().await.expect("the migrations run");
            if name == "seeded" {
                operator.seed(&registry::shipped_catalog()).await.expect("the catalog is seeded");
            }
            operator.close().await;
        }
        Templates { migrated: "migrated", seeded: "seeded" }
    })
});

struct Templates {
    migrated: &'static str,
    seeded: &'static str,
}

/// A database that is dropped with this value.
pub(crate) struct Database {
    name: String,
}

impl Database {
    /// Creates a database with the schema and no rows.
    pub(crate) async fn migrated() -> Self {
        Self::clone_of(TEMPLATE.migrated).await
    }

    /// Creates a database with the shipped catalog.
    pub(crate) async fn seeded() -> Self {
        Self::clone_of(TEMPLATE.seeded).await
    }

    /// Creates an empty database.
    pub(crate) async fn empty() -> Self {
        Self::clone_of("template0").await
    }

    async fn clone_of(template: &str) -> Self {
        let name = format!("t_{}", uuid::Uuid::new_v4().simple());
        create(&name, template).await;
        Self { name }
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn app_url(&self) -> String {
        url("pml_app", &self.name)
    }

    pub(crate) fn owner_url(&self) -> String {
        url("pml_owner", &self.name)
    }

    /// Connects a registry, as the gateway does.
    pub(crate) async fn registry(&self) -> Registry {
        Registry::connect_with(&self.app_url(), 4).await.expect("the registry connects")
    }

    pub(crate) async fn operator(&self) -> Operator {
        Operator::connect(&self.owner_url()).await.expect("the operator connects")
    }

    /// Connects as the serving role, for the test's own SQL.
    pub(crate) async fn app(&self) -> PgConnection {
        connect(&self.app_url()).await
    }

    /// Connects as the owner of the tables.
    pub(crate) async fn owner(&self) -> PgConnection {
        connect(&self.owner_url()).await
    }

    /// Connects as a superuser, who sees all rows.
    pub(crate) async fn superuser(&self) -> PgConnection {
        connect(&url("pml", &self.name)).await
    }

    /// Creates scopes and returns them as tenants without a principal.
    pub(crate) async fn tenants<const N: usize>(&self, scopes: [&str; N]) -> [Tenant; N] {
        let operator = self.operator().await;
        for scope in scopes {
            operator.create_scope(&scope.parse().unwrap()).await.expect("the scope is made");
        }
        operator.close().await;
        scopes.map(|scope| Tenant::of(scope.parse().unwrap()))
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        let drop = format!("drop database if exists {} with (force)", self.name);
        // A thread, because this may run inside the runtime of the test.
        let dropped = thread::spawn(|| {
            blocking(async { superuser().await.execute(AssertSqlSafe(drop)).await.map(|_| ()) })
        });
        let dropped = dropped.join();
        if !thread::panicking() {
            dropped.expect("no panic").expect("the database is dropped");
        }
    }
}

/// Returns the names of the databases that tests use now.
pub(crate) async fn existing() -> Vec<String> {
    let rows = superuser()
        .await
        .fetch_all("select datname::text from pg_database where datname like 't\\_%'")
        .await
        .expect("the catalog of databases");
    rows.iter().map(|row| row.get(0)).collect()
}

/// Begins a transaction with the settings of a tenant.
pub(crate) async fn act_as(connection: &mut PgConnection, scope: &str, principal: &str) {
    let (org, project) = scope.split_once('.').unwrap_or(("", ""));
    connection.execute("begin").await.expect("a transaction");
    sqlx::query(
        "select set_config('app.org', $1, true), set_config('app.project', $2, true),
            set_config('app.principal', $3, true)",
    )
    .bind(org)
    .bind(project)
    .bind(principal)
    .execute(connection)
    .await
    .expect("the settings are set");
}

/// Returns the SQLSTATE of a query that the database refused.
pub(crate) fn sqlstate<T: std::fmt::Debug>(result: Result<T, sqlx::Error>) -> String {
    let error = result.expect_err("the database refuses");
    error.as_database_error().expect("an error of the database").code().unwrap().into_owned()
}

/// Returns whether a result is [`RegistryError::NotFound`].
pub(crate) fn is_not_found<T: std::fmt::Debug>(result: Result<T, RegistryError>) -> bool {
    matches!(result, Err(RegistryError::NotFound(_)))
}

async fn create(name: &str, template: &str) {
    let mut connection = superuser().await;
    // With the cluster's locale and encoding, also from `template0`.
    let create =
        format!("create database {name} owner pml_owner template {template} strategy file_copy");
    connection.execute(AssertSqlSafe(create)).await.expect("the database is made");
    // The same grants as the launcher's for the gateway's own database.
    let grants = format!(
        "revoke all on database {name} from public; grant connect on database {name} to pml_app"
    );
    sqlx::raw_sql(AssertSqlSafe(grants)).execute(&mut connection).await.expect("the grants");
}

async fn superuser() -> PgConnection {
    connect(&cluster::shared().superuser_url()).await
}

async fn connect(url: &str) -> PgConnection {
    PgConnection::connect(url).await.expect("Postgres answers")
}

fn url(role: &str, database: &str) -> String {
    let superuser = cluster::shared().superuser_url();
    superuser.replacen("postgres://pml@", &format!("postgres://{role}@"), 1).replacen(
        "/postgres?",
        &format!("/{database}?"),
        1,
    )
}

/// Runs a future on a separate thread, outside the runtime of the test.
fn blocking<T: Send + 'static>(future: impl Future<Output = T> + Send + 'static) -> T {
    let run = || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        runtime.expect("a runtime").block_on(future)
    };
    thread::spawn(run).join().expect("no panic")
}
