//! Many entries, written into the gateway's database as fast as it takes them.

use std::error::Error;
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

use crate::gateway::Gateway;

/// What triggers and indexes do for each row takes an hour for a million of them. Triggers are off for this session,
/// so the statements do what those would have done; the indexes that are no constraints are made again at the end.
const BEFORE: &str = r"
set session_replication_role = replica;
set maintenance_work_mem = '512MB';
create temp table made_later as
    select indexrelid::regclass::text as name, pg_get_indexdef(indexrelid) as definition
    from pg_index
    where indrelid in ('mcp_servers'::regclass, 'tools'::regclass, 'public_entries'::regclass) and not indisunique;
select format('drop index %s', name) from made_later \gexec
";
const AFTER: &str = r"
select definition from made_later \gexec
vacuum analyze mcp_servers;
vacuum analyze tools;
vacuum analyze public_entries;
notify pml_entries;
";

/// Runs a script of `psql` on the private Postgres of the gateway, statement by statement.
fn run(gateway: &Gateway, script: &str) -> Result<(), Box<dyn Error>> {
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

#[expect(clippy::print_stderr, reason = "a bench says what it waits for")]
fn write(gateway: &Gateway, what: &str, rows: &str) -> Result<(), Box<dyn Error>> {
    let started = Instant::now();
    run(gateway, &format!("{BEFORE}{rows}{AFTER}"))?;
    eprintln!("wrote {what} in {:.0} s", started.elapsed().as_secs_f64());
    Ok(())
}

/// Adds public servers `local.default.bulk_N`, each with the right hash of its content.
#[allow(dead_code, reason = "not every bench wants them")]
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
#[allow(dead_code, reason = "not every bench wants them")]
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
