-- MCP servers that tenants publish, in versions that never change; entries that are deleted one by one.

create table published_servers (
    org text not null,
    project text not null,
    namespace text not null check (namespace ~ '^[A-Za-z0-9_][A-Za-z0-9_-]{0,127}$'),
    visibility text not null check (visibility in ('private', 'project', 'org', 'public', 'deleted')),
    owner text not null,
    latest text,
    created_at timestamptz not null default now(),
    primary key (org, project, namespace),
    -- Lets versions repeat what decides who sees a row, and follow its changes.
    unique (org, project, namespace, visibility, owner),
    foreign key (org, project) references projects (org, name)
);
comment on table published_servers is 'Servers that tenants publish, by name; the present version of each is in mcp_servers, where all servers are looked up';
comment on column published_servers.org is 'The owning organisation';
comment on column published_servers.project is 'The owning project';
comment on column published_servers.namespace is 'The name before the colon in its tools'' ids';
comment on column published_servers.visibility is 'Who may know of it: private (its owner), project, org or public; deleted is nobody, and the row keeps its name';
comment on column published_servers.owner is 'The principal that published it first';
comment on column published_servers.latest is 'The highest version that is not yanked; null when all are, and then mcp_servers has none';
comment on column published_servers.created_at is 'When it was first published';

create table server_versions (
    org text not null,
    project text not null,
    namespace text not null,
    version text not null check (version ~ '^(0|[1-9][0-9]{0,8})\.(0|[1-9][0-9]{0,8})\.(0|[1-9][0-9]{0,8})$'),
    content text not null check (octet_length(content) <= 1048576),
    integrity text not null check (integrity ~ '^sha256-[A-Za-z0-9+/]{43}=$'),
    published_by text not null,
    published_at timestamptz not null default now(),
    deprecated text check (length(deprecated) between 1 and 1000),
    yanked_at timestamptz,
    visibility text not null,
    owner text not null,
    rank int[] not null generated always as (string_to_array(version, '.')::int[]) stored,
    routing text not null generated always as (
        case content::jsonb ->> 'type' when 'http' then 'server' else 'client' end) stored,
    primary key (org, project, namespace, version),
    foreign key (org, project, namespace, visibility, owner)
        references published_servers (org, project, namespace, visibility, owner)
        on update cascade
);
comment on table server_versions is 'What a published server was in each version; a version never changes and is never taken out';
comment on column server_versions.org is 'The owning organisation';
comment on column server_versions.project is 'The owning project';
comment on column server_versions.namespace is 'The server';
comment on column server_versions.version is 'Major, minor and patch';
comment on column server_versions.content is 'The entry as JSON, without routing and integrity; it has the version';
comment on column server_versions.integrity is 'SHA-256 of the canonical form of `content`, checked at every read';
comment on column server_versions.published_by is 'The principal that published this version';
comment on column server_versions.published_at is 'When';
comment on column server_versions.deprecated is 'Why it should not be used any more; null while it should';
comment on column server_versions.yanked_at is 'Since when only those who name the version get it; null if all do';
comment on column server_versions.visibility is 'Its server''s, repeated for row-level security';
comment on column server_versions.owner is 'Its server''s, repeated for row-level security';
comment on column server_versions.rank is 'The version as numbers, which sort as versions do; generated';
comment on column server_versions.routing is 'Where a tenant''s server runs: http on the gateway''s side, everything else on the user''s machine; generated';

create function server_versions_are_immutable() returns trigger language plpgsql as $$
begin
    if tg_op = 'DELETE' or (new.content, new.integrity, new.version, new.published_by, new.published_at)
        is distinct from (old.content, old.integrity, old.version, old.published_by, old.published_at) then
        raise exception 'a published version never changes' using errcode = 'insufficient_privilege';
    end if;
    return new;
end
$$;
comment on function server_versions_are_immutable() is 'Refuses to change what was published, to the owner of the table as well';
create trigger server_versions_are_immutable before update or delete on server_versions
    for each row execute function server_versions_are_immutable();
create trigger project_is_open before insert on published_servers for each row execute function project_is_open();
create trigger project_is_open before insert on server_versions for each row execute function project_is_open();
create trigger notify_entries after insert or update or delete or truncate on server_versions
    for each statement execute function notify_entries();

alter table published_servers enable row level security, force row level security;
alter table server_versions enable row level security, force row level security;

create policy visible on published_servers for select using (is_visible(org, project, visibility, owner));
create policy tenant_insert on published_servers for insert
    with check (org = app_org() and project = app_project());
create policy tenant_update on published_servers for update
    using (org = app_org() and project = app_project() and is_visible(org, project, visibility, owner))
    with check (org = app_org() and project = app_project());
create policy deletion on published_servers using (org = app_org() and project = app_project() and app_deleting());
create policy visible on server_versions for select using (is_visible(org, project, visibility, owner));
create policy tenant_insert on server_versions for insert
    with check (org = app_org() and project = app_project());
create policy tenant_update on server_versions for update
    using (org = app_org() and project = app_project() and is_visible(org, project, visibility, owner))
    with check (org = app_org() and project = app_project());
-- The public catalog is the operator's: the gateway cannot write it, whatever tenant it claims.
create policy catalog_insert on published_servers as restrictive for insert to pml_app with check (org <> 'pml');
create policy catalog_update on published_servers as restrictive for update to pml_app using (org <> 'pml');
create policy catalog_insert on server_versions as restrictive for insert to pml_app with check (org <> 'pml');
create policy catalog_update on server_versions as restrictive for update to pml_app using (org <> 'pml');

grant select, insert, update (latest, visibility) on published_servers to pml_app;
grant select, insert, update (deprecated, yanked_at) on server_versions to pml_app;

alter table mcp_servers add column deprecated text;
comment on column mcp_servers.deprecated is 'Why the present version of a published server should not be used any more; not a part of its content';

-- What names a deleted server in the official API, whose rows are gone.
alter table tombstones add column version text;
comment on column tombstones.version is 'The last version of a server in the official API; null for all else';
create index tombstones_servers on tombstones (org, project, namespace) where name = '';

-- Whoever could see an entry is told of its end at once.
create trigger notify_entries after insert on tombstones
    for each statement execute function notify_entries();
