//! The schema: migrated once, also by concurrent starts, with row-level security on every table.

use registry::{MIGRATOR, Operator, Registry, RegistryError};
use sqlx::{Executor as _, Row as _};
use tokio::task::JoinSet;

use crate::database::{Database, existing};

#[tokio::test]
async fn a_second_migration_changes_nothing() {
    let database = Database::migrated().await;
    let operator = database.operator().await;
    operator.migrate().await.unwrap();
    let mut connection = database.owner().await;
    let versions: Vec<i64> =
        sqlx::query_scalar("select version from _sqlx_migrations where success order by version")
            .fetch_all(&mut connection)
            .await
            .unwrap();
    let expected: Vec<i64> = MIGRATOR.iter().map(|migration| migration.version).collect();
    assert_eq!(versions, expected);
}

#[tokio::test]
async fn concurrent_migrations_and_seeds_succeed() {
    let database = Database::empty().await;
    let mut starts = JoinSet::new();
    for _ in 0..6 {
        let url = database.owner_url();
        starts.spawn(async move {
            let operator = Operator::connect(&url).await?;
            operator.migrate().await?;
            let report = operator.seed(&registry::shipped_catalog()).await?;
            operator.create_scope(&"local.default".parse().unwrap()).await?;
            Ok::<_, RegistryError>(report)
        });
    }
    let reports: Vec<_> =
        starts.join_all().await.into_iter().collect::<Result<_, _>>().expect("every start works");
    assert!(reports.iter().all(|report| report.servers == reports[0].servers));
    // One of them wrote; the others changed nothing.
    assert_eq!(reports.iter().filter(|report| report.changed > 0).count(), 1, "{reports:?}");
    database.registry().await.check_ready().await.unwrap();
}

#[tokio::test]
async fn an_empty_database_is_reported_as_not_migrated() {
    let database = Database::empty().await;
    let refused = Registry::connect(&database.app_url()).await.unwrap_err();
    assert!(matches!(refused, RegistryError::NotMigrated), "{refused}");
}

#[tokio::test]
async fn a_schema_that_lacks_a_migration_is_refused() {
    let database = Database::migrated().await;
    let registry = database.registry().await;
    let last = MIGRATOR.iter().map(|migration| migration.version).max().unwrap();
    sqlx::query("delete from _sqlx_migrations where version = $1")
        .bind(last)
        .execute(&mut database.owner().await)
        .await
        .unwrap();
    let refused = registry.check_ready().await.unwrap_err();
    assert!(matches!(refused, RegistryError::NotMigrated), "{refused}");
}

#[tokio::test]
async fn an_edited_migration_is_refused() {
    let database = Database::migrated().await;
    let edit = "update _sqlx_migrations set checksum = '\\x00' where version = 1";
    database.owner().await.execute(edit).await.unwrap();
    let refused = database.operator().await.migrate().await.unwrap_err();
    assert!(matches!(refused, RegistryError::Migrate(_)), "{refused}");
}

/// Waiting for another gateway's migration is not limited by the timeouts of requests.
#[tokio::test]
async fn the_operator_has_no_statement_timeout() {
    let database = Database::migrated().await;
    // The owner's own setting is kept, because the connection sets none.
    let name = database.name();
    let set = format!("alter role pml_owner in database {name} set statement_timeout = '77s'");
    database.superuser().await.execute(sqlx::AssertSqlSafe(set)).await.unwrap();
    let probe = "create function probe() returns trigger language plpgsql as $$ begin
            if current_setting('statement_timeout') <> '77s' then
                raise exception 'statement_timeout is %', current_setting('statement_timeout');
            end if;
            return new;
        end $$;
        create trigger probe before insert on orgs for each row execute function probe()";
    sqlx::raw_sql(probe).execute(&mut database.owner().await).await.unwrap();
    database.operator().await.create_scope(&"acme.web".parse().unwrap()).await.unwrap();
}

#[tokio::test]
async fn a_role_that_bypasses_row_level_security_is_refused() {
    let database = Database::migrated().await;
    for url in [database.owner_url(), database.app_url().replace("pml_app@", "pml@")] {
        let refused = Registry::connect(&url).await.unwrap_err();
        assert!(matches!(refused, RegistryError::UnsafeRole { .. }), "{refused}");
    }
}

/// Finds tables without row-level security.
#[tokio::test]
async fn every_tenant_table_forces_row_level_security() {
    let database = Database::migrated().await;
    let tables = database
        .owner()
        .await
        .fetch_all(
            "select c.relname::text, c.relrowsecurity, c.relforcerowsecurity,
                exists (select from pg_policy p where p.polrelid = c.oid) as has_policy,
                has_table_privilege('pml_app', c.oid, 'select, insert, update, delete, truncate')
                    as is_granted,
                (c.relname = 'orgs' or exists (select from pg_attribute a
                    where a.attrelid = c.oid and not a.attisdropped
                        and a.attname in ('org', 'project'))) as of_tenants
            from pg_class c join pg_namespace n on n.oid = c.relnamespace
            where n.nspname = 'public' and c.relkind in ('r', 'p', 'f', 'm')
            order by c.relname",
        )
        .await
        .unwrap();
    let mut of_tenants = Vec::new();
    for table in &tables {
        let name: String = table.get("relname");
        if table.get::<bool, _>("of_tenants") {
            assert!(
                table.get::<bool, _>("relrowsecurity"),
                "row-level security is off on `{name}`"
            );
            assert!(
                table.get::<bool, _>("relforcerowsecurity"),
                "row-level security of `{name}` does not bind its owner"
            );
            assert!(table.get::<bool, _>("has_policy"), "`{name}` has no policy");
            // A partition is reached only through its table, whose policies then apply.
            if name.starts_with("trace_events_") {
                assert!(!table.get::<bool, _>("is_granted"), "`{name}` can be read by itself");
            } else {
                of_tenants.push(name);
            }
        } else {
            let operators =
                ["_sqlx_migrations", "master_keys", "quotas", "rate_buckets", "routing_rules"];
            assert!(operators.contains(&name.as_str()), "`{name}`");
        }
    }
    let expected = [
        "api_keys",
        "audit_log",
        "capabilities",
        "capability_versions",
        "data_keys",
        "executions",
        "idempotency_keys",
        "mcp_servers",
        "memberships",
        "official_versions",
        "orgs",
        "projects",
        "public_entries",
        "published_servers",
        "quarantined_servers",
        "registry_links",
        "secrets",
        "server_versions",
        "synced_servers",
        "tombstones",
        "tool_classes",
        "tools",
        "trace_events",
        "traces",
        "users",
    ];
    assert_eq!(of_tenants, expected);
    // A view with its owner's rights would bypass the policies.
    let views: Vec<String> = sqlx::query_scalar(
        "select relname::text from pg_class c join pg_namespace n on n.oid = c.relnamespace
        where n.nspname = 'public' and c.relkind = 'v'
            and not coalesce(c.reloptions, '{}') @> array['security_invoker=true']",
    )
    .fetch_all(&mut database.owner().await)
    .await
    .unwrap();
    assert_eq!(views, Vec::<String>::new());
    // A function with its owner's rights could do so as well. Only the maintenance of records has them: with names that
    // mean the same for everyone, and for the role that serves alone.
    let definers = sqlx::query(
        "select p.proname::text, coalesce(p.proconfig, '{}') @> array['search_path=pg_catalog, pg_temp'] as is_fixed,
            has_function_privilege('pml_app', p.oid, 'execute') as for_app,
            exists (select from aclexplode(coalesce(p.proacl, acldefault('f', p.proowner))) a
                where a.grantee = 0) as for_all
        from pg_proc p join pg_namespace n on n.oid = p.pronamespace
        where n.nspname = 'public' and p.prosecdef order by 1",
    )
    .fetch_all(&mut database.owner().await)
    .await
    .unwrap();
    let names: Vec<String> = definers.iter().map(|row| row.get("proname")).collect();
    assert_eq!(names, ["expire_records", "expire_synced_tools", "make_trace_partitions"]);
    for row in &definers {
        let facts = ["is_fixed", "for_app", "for_all"].map(|fact| row.get::<bool, _>(fact));
        assert_eq!(facts, [true, true, false], "{}", row.get::<String, _>("proname"));
    }
}

#[tokio::test]
async fn the_serving_role_has_minimal_privileges() {
    let database = Database::migrated().await;
    let mut app = database.app().await;
    let role = app
        .fetch_one(
            "select rolsuper, rolbypassrls, rolcreaterole, rolcreatedb, rolreplication,
                (select count(*) from pg_class where relowner = r.oid)
                + (select count(*) from pg_proc where proowner = r.oid)
                + (select count(*) from pg_namespace where nspowner = r.oid)
                + (select count(*) from pg_database where datdba = r.oid) as owned,
                (select count(*) from pg_auth_members where member = r.oid) as memberships
            from pg_roles r where rolname = current_user",
        )
        .await
        .unwrap();
    for right in ["rolsuper", "rolbypassrls", "rolcreaterole", "rolcreatedb", "rolreplication"] {
        assert!(!role.get::<bool, _>(right), "{right}");
    }
    assert_eq!((role.get::<i64, _>("owned"), role.get::<i64, _>("memberships")), (0, 0));
    for statement in [
        "create table mine (x int)",
        "create temporary table mine (x int)",
        "alter table tools disable row level security",
        "drop policy visible on tools",
        "set role pml_owner",
        "set session authorization pml_owner",
        "alter role pml_app bypassrls",
        "insert into routing_rules values ('*', 'server', 'operator')",
        "update routing_rules set routing = 'server'",
        "insert into orgs (name) values ('mine')",
        "delete from api_keys",
        "update api_keys set rights = '{admin}'",
        "truncate tools",
        "delete from projects",
        "update projects set name = 'other'",
        "delete from memberships",
        "update memberships set principal = 'other'",
        "delete from users",
        "delete from tombstones",
        "update tombstones set visibility = 'public'",
        "update api_keys set org_role = 'owner'",
        "update data_keys set wrapped = ''",
        "delete from data_keys",
        "update secrets set owner = 'other'",
        "update master_keys set is_current = false",
        "delete from master_keys",
        "delete from executions",
        "update executions set tools = '{}'",
        "copy tools to program 'cat'",
        "select pg_read_file('/etc/passwd')",
    ] {
        app.execute(statement).await.expect_err(statement);
    }
}

#[tokio::test]
async fn every_table_and_column_has_a_comment() {
    let database = Database::migrated().await;
    let silent: Vec<String> = sqlx::query_scalar(
        "select c.relname || coalesce('.' || a.attname, '')
        from pg_class c
        join pg_namespace n on n.oid = c.relnamespace and n.nspname = 'public'
        left join pg_attribute a on a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped
            and c.relkind in ('r', 'p')
        where c.relkind in ('r', 'p', 'v') and c.relname <> '_sqlx_migrations'
            and (obj_description(c.oid, 'pg_class') is null
                or (a.attnum is not null and col_description(c.oid, a.attnum) is null))
        union all
        select p.proname || '()' from pg_proc p
        join pg_namespace n on n.oid = p.pronamespace and n.nspname = 'public'
        where obj_description(p.oid, 'pg_proc') is null
            and not exists (select from pg_depend d where d.objid = p.oid and d.deptype = 'e')
        order by 1",
    )
    .fetch_all(&mut database.owner().await)
    .await
    .unwrap();
    assert_eq!(silent, Vec::<String>::new());
}

#[tokio::test]
async fn a_panicking_test_leaves_no_database() {
    let panicking = tokio::spawn(async {
        let database = Database::migrated().await;
        let _busy = database.registry().await;
        std::panic::panic_any(database.name().to_owned());
        #[expect(unreachable_code, reason = "keeps the database until the panic")]
        drop(database);
    });
    let payload = panicking.await.unwrap_err().into_panic();
    let name = payload.downcast_ref::<String>().unwrap();
    assert!(!existing().await.contains(name));
}
