//! Writes many entries directly into the gateway's database.

use std::error::Error;
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

use crate::gateway::Gateway;

/// With triggers and indexes, a million rows would take an hour. So triggers are disabled for this session, and the
/// statements do their work; indexes that are not constraints are dropped, and created again at the end.
#[allow(dead_code, reason = "not every bench needs it")]
const BEFORE: &str = r"
set session_replication_role = replica;
set maintenance_work_mem = '512MB';
create temp table made_later as
    select indexrelid::regclass::text as name, pg_get_indexdef(indexrelid) as definition
    from pg_index
    where indrelid in ('mcp_servers'::regclass, 'tools'::regclass, 'public_entries'::regclass) and not indisunique;
select format('drop index %s', name) from made_later \gexec
";
#[allow(dead_code, reason = "not every bench needs it")]
const AFTER: &str = r"
select definition from made_later \gexec
vacuum analyze mcp_servers;
vacuum analyze tools;
vacuum analyze public_entries;
notify pml_entries;
";

/// Runs a `psql` script on the private Postgres of the gateway.
pub(crate) fn run(gateway: &Gateway, script: &str) -> Result<(), Box<dyn Error>> {
    let postmaster = gateway.folder.join("data/postgres/data/postmaster.pid");
    let lines = std::fs::read_to_string(postmaster)?;
    let socket = lines.lines().nth(4).ok_or("Postgres does not run")?;
    let psql = std::env::var_os("PML_PG_BIN")
        .map_or_else(|| "psql".into(), |bin| Path::new(&bin).join("psql"));
    let mut child = Command::new(psql)
        .args(["-qXAt", "-v", "ON_ERROR_STOP=1", "-U", "pml", "-d", "pml", "-h", socket])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()?;
    child.stdin.take().ok_or("psql has no stdin")?.write_all(script.as_bytes())?;
    let status = child.wait()?;
    if status.success() { Ok(()) } else { Err("psql failed".into()) }
}

#[allow(dead_code, reason = "not every bench needs it")]
#[allow(clippy::print_stderr, reason = "a bench reports its progress")]
fn write(gateway: &Gateway, what: &str, rows: &str) -> Result<(), Box<dyn Error>> {
    let started = Instant::now();
    run(gateway, &format!("{BEFORE}{rows}{AFTER}"))?;
    eprintln!("wrote {what} in {:.0} s", started.elapsed().as_secs_f64());
    Ok(())
}

/// Adds public servers `local.default.bulk_N`, each with the right hash of its content.
#[allow(dead_code, reason = "not every bench needs them")]
pub(crate) fn add_servers(gateway: &Gateway, from: u32, to: u32) -> Result<(), Box<dyn Error>> {
    let rows = format!(
        r#"
insert into mcp_servers (org, project, namespace, content, integrity, visibility, owner)
    select 'local', 'default', 'bulk_' || n, content,
        'sha256-' || encode(sha256(convert_to(content, 'utf8')), 'base64'), 'public', 'bench'
    from generate_series({from}, {to}) n,
        format('{{"description":"Serves number %s, %s.","fqdn":"local.default.bulk_%s","proxy_to":"https://up.example/%s","tools":[{{"description":"Asks. %s","inputSchema":{{"type":"object"}},"name":"ask"}}],"type":"http","warnings":[]}}',
            n, repeat(md5(n::text) || ' ', 3), n, n, repeat(md5(n::text) || ' ', 9)) content;
insert into public_entries (org, project, namespace, kind, description, tool_count, integrity, updated_at)
    select org, project, namespace, kind, left(description, 1000), tool_count, integrity, updated_at
    from mcp_servers s join generate_series({from}, {to}) n
        on (s.org, s.project, s.namespace) = ('local', 'default', 'bulk_' || n);
"#
    );
    write(gateway, &format!("the entries {from} to {to}"), &rows)
}

/// Adds public servers `pml.mcp.many_N` with ten tools each, `ask_0` to `ask_9`.
#[allow(dead_code, reason = "not every bench needs them")]
pub(crate) fn add_tools(gateway: &Gateway, from: u32, to: u32) -> Result<(), Box<dyn Error>> {
    let rows = format!(
        r#"
insert into mcp_servers (org, project, namespace, content, integrity, routing, visibility, owner)
    select 'pml', 'mcp', 'many_' || n, content,
        'sha256-' || encode(sha256(convert_to(content, 'utf8')), 'base64'), 'server', 'public', 'bench'
    from generate_series({from}, {to}) n,
        format('{{"description":"Serves number %s.","fqdn":"pml.mcp.many_%s","proxy_to":"https://up.example/%s","tools":[],"type":"http","warnings":[]}}',
            n, n, n) content;
insert into tools (org, project, namespace, name, content, integrity, visibility, owner)
    select 'pml', 'mcp', 'many_' || n, 'ask_' || k, content,
        'sha256-' || encode(sha256(convert_to(content, 'utf8')), 'base64'), 'public', 'bench'
    from generate_series({from}, {to}) n, generate_series(0, 9) k,
        format('{{"description":"Serves number %s.","fqdn":"pml.mcp.many_%s.ask_%s","proxy_to":"https://up.example/%s","tools":[{{"description":"Asks number %s for %s.","inputSchema":{{"properties":{{"q":{{"type":"string"}}}},"required":["q"],"type":"object"}},"name":"ask_%s"}}],"type":"http","warnings":[]}}',
            n, n, k, n, n, md5(k::text || n), k) content;
insert into public_entries (org, project, namespace, kind, routing, description, tool_count, integrity, updated_at)
    select org, project, namespace, kind, routing, left(description, 1000), tool_count, integrity, updated_at
    from mcp_servers s join generate_series({from}, {to}) n
        on (s.org, s.project, s.namespace) = ('pml', 'mcp', 'many_' || n);
"#
    );
    write(gateway, &format!("the tools of the servers {from} to {to}"), &rows)
}

/// Adds servers `svc_N` with ten tools each. Their names and descriptions consist of everyday words, each of which
/// occurs in thousands of tools, and of one unique word. Of ten servers, five are in the catalog, four belong to
/// `local.default`, and one is a public one of another organisation.
#[allow(dead_code, reason = "not every bench needs them")]
pub(crate) fn add_worded_tools(
    gateway: &Gateway,
    from: u32,
    to: u32,
) -> Result<(), Box<dyn Error>> {
    let rows = format!(
        r#"
insert into orgs (name) values ('stranger') on conflict do nothing;
insert into projects (org, name) values ('stranger', 'shared') on conflict do nothing;
create temp table worded as
    select n, 'svc_' || n as namespace,
        case when n % 10 = 0 then 'stranger' when n % 2 = 1 then 'pml' else 'local' end as org,
        case when n % 10 = 0 then 'shared' when n % 2 = 1 then 'mcp' else 'default' end as project,
        case when n % 10 <> 0 and n % 2 = 0 then 'project' else 'public' end as visibility,
        (array['mail', 'shop', 'billing', 'calendar', 'wiki', 'tracker', 'store', 'chat', 'maps', 'bank'])[1 + n % 10] as kind
    from generate_series({from}, {to}) n;
insert into mcp_servers (org, project, namespace, content, integrity, routing, visibility, owner)
    select org, project, namespace, content,
        'sha256-' || encode(sha256(convert_to(content, 'utf8')), 'base64'), 'server', visibility, 'bench'
    from worded cross join lateral
        format('{{"description":"The %s service of number %s.","fqdn":"%s.%s.%s","proxy_to":"https://up.example/%s","tools":[],"type":"http","warnings":[]}}',
            kind, n, org, project, namespace, n) content;
insert into tools (org, project, namespace, name, content, integrity, visibility, owner)
    select org, project, namespace, name, content,
        'sha256-' || encode(sha256(convert_to(content, 'utf8')), 'base64'), visibility, 'bench'
    from worded cross join generate_series(0, 9) k
        cross join lateral (select
            (array['create', 'get', 'list', 'update', 'delete', 'search', 'read', 'send', 'export', 'count'])[1 + (n / 7 + k) % 10] as verb,
            (array['invoice', 'message', 'customer', 'file', 'event', 'page', 'issue', 'order', 'payment', 'report', 'user', 'contact'])[1 + (n / 3 + k * 5) % 12] as thing) w
        cross join lateral (select verb || '_' || thing || '_' || k as name) t
        cross join lateral
        format('{{"description":"The %s service of number %s.","fqdn":"%s.%s.%s.%s","proxy_to":"https://up.example/%s","tools":[{{"description":"Uses the %s service to %s one %s or more of an account. Returns the %s with its date, its owner and its state; read more at the page of word%s.","inputSchema":{{"properties":{{"account":{{"type":"string"}},"limit":{{"type":"integer"}},"the_%s":{{"type":"string"}}}},"required":["the_%s"],"type":"object"}},"name":"%s"}}],"type":"http","warnings":[]}}',
            kind, n, org, project, namespace, name, n, kind, verb, thing, thing, md5(n::text || k), thing, thing, name) content;
insert into public_entries (org, project, namespace, kind, routing, description, tool_count, integrity, updated_at)
    select s.org, s.project, s.namespace, s.kind, s.routing, left(s.description, 1000), s.tool_count, s.integrity, s.updated_at
    from worded w join mcp_servers s using (org, project, namespace) where s.visibility = 'public';
"#
    );
    write(gateway, &format!("the worded tools of the servers {from} to {to}"), &rows)
}
