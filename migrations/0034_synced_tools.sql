-- Tools of users' own MCP servers, which run on the users' machines only. Each is found by the principal who sent it.

create table synced_servers (
    org text not null,
    project text not null,
    principal text not null check (principal <> ''),
    client uuid not null,
    namespace text not null,
    actions text[] not null check (cardinality(actions) between 1 and 256),
    tools json not null,
    bytes int not null generated always as (octet_length(tools::text)) stored check (bytes <= 1048576),
    hash text not null check (hash ~ '^sha256-[A-Za-z0-9+/]{43}=$'),
    received_at timestamptz not null default now(),
    primary key (org, project, principal, client, namespace),
    foreign key (org, project) references projects (org, name)
);
create index synced_servers_age on synced_servers (received_at);
comment on table synced_servers is 'Tools of users'' own MCP servers, as far as the users had them sent; never how a server is started';
comment on column synced_servers.org is 'The organisation of the principal';
comment on column synced_servers.project is 'The project of the principal';
comment on column synced_servers.principal is 'Who sent the tools; nobody else finds them';
comment on column synced_servers.client is 'The random id of the workspace that has the server';
comment on column synced_servers.namespace is 'The namespace of its tools';
comment on column synced_servers.actions is 'The names of its tools';
comment on column synced_servers.tools is 'Names, descriptions, schemas and hints, without what looks like a secret. Not jsonb, which cannot hold U+0000';
comment on column synced_servers.bytes is 'The size of `tools`';
comment on column synced_servers.hash is 'SHA-256 of the canonical form of `tools`';
comment on column synced_servers.received_at is 'When the set arrived, also if it was the same as before';

alter table synced_servers enable row level security, force row level security;
create policy own on synced_servers
    using (org = app_org() and project = app_project() and principal = app_principal());
-- The limit of a project counts what its other principals have.
create policy counting on synced_servers for select
    using (org = app_org() and project = app_project() and current_setting('app.counting', true) = 'on');
grant select, insert, delete,
    update (actions, tools, hash, received_at) on synced_servers to pml_app;
create trigger project_is_open before insert on synced_servers
    for each row execute function project_is_open();

create policy expiry on synced_servers to current_user using (current_setting('app.expiring', true) = 'on');

create function expire_synced_tools(days int, most int) returns bigint language plpgsql
    security definer set search_path = pg_catalog, pg_temp set lock_timeout = '500ms' as $$
declare
    gone bigint;
begin
    -- As for other records: who gets hold of the role that serves cannot empty the table of all tenants with this.
    if days is null or days < 7 then
        raise exception 'synced tools are kept for at least 7 days' using errcode = 'check_violation';
    end if;
    if not pg_try_advisory_xact_lock(hashtextextended('pml expire synced tools', 0)) then
        return 0;
    end if;
    perform set_config('app.expiring', 'on', true);
    delete from public.synced_servers where ctid = any (array(
        select ctid from public.synced_servers
        where received_at < now() - make_interval(days => days) limit most for update skip locked));
    get diagnostics gone = row_count;
    perform set_config('app.expiring', '', true);
    return gone;
end
$$;
comment on function expire_synced_tools(int, int) is
    'Removes at most so many servers whose tools were not sent again for this number of days, with the rights of the owner; returns how many';
revoke execute on function expire_synced_tools(int, int) from public;
grant execute on function expire_synced_tools(int, int) to pml_app;
