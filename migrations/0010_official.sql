-- The public catalog as a list of its own, the official registry's API, and what was read from elsewhere.

-- What everybody may see, one row an entry. Row-level security is a barrier for the planner: beneath it only
-- leakproof operators reach an index, and `like` is none. Here is nothing to hide, so the policy for reading is
-- `true`, the planner drops it, and a search goes by its trigrams.
create table public_entries (
    org text not null,
    project text not null,
    namespace text not null,
    name text not null default '',
    kind text not null check (kind in ('stdio', 'http', 'native', 'deno')),
    routing text check (routing in ('client', 'server')),
    description text not null check (length(description) <= 1000),
    tool_count int not null,
    integrity text not null,
    updated_at timestamptz not null,
    search text not null generated always as (lower(namespace || ' ' || name || ' ' || description)) stored,
    official_name text generated always as (
        case when kind in ('stdio', 'http') then lower(org || '.' || project || '/' || namespace) end) stored,
    primary key (org, project, namespace, name)
);
comment on table public_entries is 'Every public entry, as the catalog lists it; kept by triggers on mcp_servers and capabilities';
comment on column public_entries.org is 'The owning organisation';
comment on column public_entries.project is 'The owning project';
comment on column public_entries.namespace is 'The server, or the name before the colon in a capability''s id';
comment on column public_entries.name is 'The name after the colon in a capability''s id; empty for a server';
comment on column public_entries.kind is 'stdio, http, native, or deno for a capability';
comment on column public_entries.routing is 'Where it runs by its own row; null leaves it to the rules';
comment on column public_entries.description is 'What it does, its first 1,000 characters';
comment on column public_entries.tool_count is 'How many tools it offers';
comment on column public_entries.integrity is 'The hash of its content, to list; the content is verified when it is served';
comment on column public_entries.updated_at is 'When it last changed';
comment on column public_entries.search is 'What a search looks in; generated';
comment on column public_entries.official_name is 'The name of a server in the official API, in lower case, for its search; generated';

-- Lists are in the order of bytes on every database, whatever its locale; each filter has its own index in it.
create index public_entries_order on public_entries
    (org collate "C", project collate "C", namespace collate "C", name collate "C");
create index public_entries_kind on public_entries
    (kind, org collate "C", project collate "C", namespace collate "C", name collate "C");
create index public_entries_routing on public_entries
    (coalesce(routing, ''), org collate "C", project collate "C", namespace collate "C", name collate "C");
create index public_entries_namespace on public_entries
    (namespace, org collate "C", project collate "C", name collate "C");
create index public_entries_search on public_entries using gin (search gin_trgm_ops);
create index public_entries_official on public_entries using gin (official_name gin_trgm_ops) where official_name is not null;
create index public_entries_servers on public_entries
    (org collate "C", project collate "C", namespace collate "C") where official_name is not null;
create index public_entries_updated on public_entries (updated_at) where official_name is not null;
create index mcp_servers_order on mcp_servers
    (org, project collate "C", namespace collate "C") where visibility <> 'public';
create index capabilities_order on capabilities
    (org, project collate "C", namespace collate "C", name collate "C") where visibility <> 'public';

create function like_pattern(wanted text) returns text immutable parallel safe language sql
    return '%' || replace(replace(replace(lower(wanted), '\', '\\'), '%', '\%'), '_', '\_') || '%';
comment on function like_pattern(text) is 'The pattern of texts that have this one in them, which has no wildcards of its own; null for null';

create function public_entries_where(after text[], pattern text, wanted_kind text, wanted_namespace text)
    returns setof public_entries stable parallel safe language sql as $$
    select * from public_entries
    where (after is null or (org collate "C", project collate "C", namespace collate "C", name collate "C")
            > (after[1] collate "C", after[2] collate "C", after[3] collate "C", after[4] collate "C"))
        and (pattern is null or search like pattern)
        and (wanted_kind is null or kind = wanted_kind)
        and (wanted_namespace is null or namespace = wanted_namespace)
$$;
comment on function public_entries_where(text[], text, text, text) is 'The public entries behind a place in the order that pass the filters; null is no filter. The planner puts it in place of its call';

-- Before row-level security is switched on, since a migration acts for nobody.
insert into public_entries (org, project, namespace, name, kind, routing, description, tool_count, integrity, updated_at)
select org, project, namespace, '', kind, routing, left(description, 1000), tool_count, integrity, updated_at
from mcp_servers where visibility = 'public'
union all
select c.org, c.project, c.namespace, c.name, 'deno', v.routing, left(v.description, 1000), 1, v.integrity, v.published_at
from capabilities c
join capability_versions v on v.org = c.org and v.project = c.project and v.namespace = c.namespace
    and v.name = c.name and v.version = c.latest
where c.visibility = 'public';

alter table public_entries enable row level security, force row level security;
create policy everybody on public_entries for select using (true);
create policy tenant_insert on public_entries for insert
    with check (org = app_org() and project = app_project());
create policy tenant_update on public_entries for update
    using (org = app_org() and project = app_project())
    with check (org = app_org() and project = app_project());
create policy tenant_delete on public_entries for delete
    using (org = app_org() and project = app_project());
-- The public catalog is the operator's: the gateway cannot write it, whatever tenant it claims.
create policy catalog_insert on public_entries as restrictive for insert to pml_app with check (org <> 'pml');
create policy catalog_update on public_entries as restrictive for update to pml_app using (org <> 'pml');
create policy catalog_delete on public_entries as restrictive for delete to pml_app using (org <> 'pml');
grant select, insert, update, delete on public_entries to pml_app;

create function list_public_servers() returns trigger language plpgsql as $$
begin
    if tg_op <> 'INSERT' then
        delete from public_entries e using gone g
        where g.visibility = 'public' and e.org = g.org and e.project = g.project
            and e.namespace = g.namespace and e.name = '';
    end if;
    if tg_op <> 'DELETE' then
        insert into public_entries
            (org, project, namespace, name, kind, routing, description, tool_count, integrity, updated_at)
        select org, project, namespace, '', kind, routing, left(description, 1000), tool_count, integrity, updated_at
        from made where visibility = 'public';
    end if;
    return null;
end
$$;
comment on function list_public_servers() is 'Keeps public_entries in step with the servers that a statement changed, with the rights of whoever changed them';
create trigger list_public_servers_insert after insert on mcp_servers
    referencing new table as made for each statement execute function list_public_servers();
create trigger list_public_servers_update after update on mcp_servers
    referencing old table as gone new table as made for each statement execute function list_public_servers();
create trigger list_public_servers_delete after delete on mcp_servers
    referencing old table as gone for each statement execute function list_public_servers();

create function list_public_capabilities() returns trigger language plpgsql as $$
begin
    if tg_op <> 'INSERT' then
        delete from public_entries e using gone g
        where g.visibility = 'public' and e.org = g.org and e.project = g.project
            and e.namespace = g.namespace and e.name = g.name;
    end if;
    if tg_op <> 'DELETE' then
        insert into public_entries
            (org, project, namespace, name, kind, routing, description, tool_count, integrity, updated_at)
        select c.org, c.project, c.namespace, c.name, 'deno', v.routing, left(v.description, 1000), 1, v.integrity,
            v.published_at
        from made c
        join capability_versions v on v.org = c.org and v.project = c.project and v.namespace = c.namespace
            and v.name = c.name and v.version = c.latest
        where c.visibility = 'public';
    end if;
    return null;
end
$$;
comment on function list_public_capabilities() is 'Keeps public_entries in step with the capabilities that a statement changed, with the rights of whoever changed them';
create trigger list_public_capabilities_insert after insert on capabilities
    referencing new table as made for each statement execute function list_public_capabilities();
create trigger list_public_capabilities_update after update on capabilities
    referencing old table as gone new table as made for each statement execute function list_public_capabilities();
create trigger list_public_capabilities_delete after delete on capabilities
    referencing old table as gone for each statement execute function list_public_capabilities();

create function notify_entries() returns trigger language plpgsql as $$
begin
    perform pg_notify('pml_entries', '');
    return null;
end
$$;
comment on function notify_entries() is 'Tells every gateway to forget the entries it remembers; once per statement';
create trigger notify_entries after insert or update or delete or truncate on mcp_servers
    for each statement execute function notify_entries();
create trigger notify_entries after insert or update or delete or truncate on tools
    for each statement execute function notify_entries();
create trigger notify_entries after insert or update or delete or truncate on capabilities
    for each statement execute function notify_entries();
create trigger notify_entries after insert or update or delete or truncate on capability_versions
    for each statement execute function notify_entries();
create trigger notify_entries after insert or update or delete or truncate on routing_rules
    for each statement execute function notify_entries();

-- Links to a project's registry for clients that cannot authenticate.
create function app_link_hash() returns bytea stable parallel safe language sql
    return decode(nullif(current_setting('app.link_hash', true), ''), 'hex');
comment on function app_link_hash() is 'The hash of the slug that is being looked up, before its tenant is known';

create table registry_links (
    id uuid primary key,
    org text not null,
    project text not null,
    name text not null check (length(name) between 1 and 200),
    slug_hash bytea not null unique check (length(slug_hash) = 32),
    created_by text not null,
    created_at timestamptz not null default now(),
    revoked_at timestamptz,
    foreign key (org, project) references projects (org, name)
);
create index registry_links_scope on registry_links (org, project, created_at, id);
comment on table registry_links is 'Addresses under which a project''s registry is read without a key; the slugs are shown once and never stored';
comment on column registry_links.id is 'Names the link in lists and logs';
comment on column registry_links.org is 'The organisation whose entries it shows';
comment on column registry_links.project is 'The project whose entries it shows';
comment on column registry_links.name is 'What its maker calls it';
comment on column registry_links.slug_hash is 'SHA-256 of the slug; the slug has 128 random bits, so no salt is needed';
comment on column registry_links.created_by is 'The principal that made it';
comment on column registry_links.created_at is 'When it was made';
comment on column registry_links.revoked_at is 'Since when it leads nowhere; null means it does lead';

alter table registry_links enable row level security, force row level security;
create policy tenant on registry_links using (org = app_org() and project = app_project());
-- Whoever has the slug may read its row: that is how its tenant is found.
create policy presented on registry_links for select using (slug_hash = app_link_hash());
grant select, insert, update (revoked_at) on registry_links to pml_app;

create function scope_by_slug(presented bytea) returns table (org text, project text)
    volatile language plpgsql as $$
begin
    perform set_config('app.link_hash', encode(presented, 'hex'), true);
    return query
        select l.org, l.project from registry_links l
        where l.slug_hash = presented and l.revoked_at is null;
    perform set_config('app.link_hash', '', true);
end
$$;
comment on function scope_by_slug(bytea) is 'Finds the project that a link leads to, in one round trip, with the caller''s rights';

-- What was read from another registry and nobody has judged yet. The serving role has no right to it at all.
create table quarantined_servers (
    org text not null default 'pml' check (org = 'pml'),
    project text not null default 'mcp' check (project = 'mcp'),
    name text not null check (name ~ '^[A-Za-z0-9.-]+/[A-Za-z0-9._-]+$' and length(name) <= 200),
    version text not null check (length(version) between 1 and 255),
    integrity text not null check (integrity ~ '^sha256-[A-Za-z0-9+/]{43}=$'),
    content text not null check (octet_length(content) <= 65536),
    status text not null check (status in ('active', 'deprecated', 'deleted')),
    flags text[] not null default '{}',
    source text not null,
    seen_at timestamptz not null default now(),
    decision text check (decision in ('approved', 'rejected')),
    decided_at timestamptz,
    approved_as text,
    primary key (name, version, integrity),
    check ((decision = 'approved') = (approved_as is not null) or decision is null)
);
create unique index quarantined_servers_approved on quarantined_servers (name, version) where decision = 'approved';
comment on table quarantined_servers is 'Servers read from another registry, kept apart until the operator approves them; not part of the catalog';
comment on column quarantined_servers.org is 'Always the public catalog''s';
comment on column quarantined_servers.project is 'Always the public catalog''s';
comment on column quarantined_servers.name is 'The name there, `domain/server`';
comment on column quarantined_servers.version is 'The version there';
comment on column quarantined_servers.integrity is 'SHA-256 of the canonical form of `content`: other bytes under the same version are another row';
comment on column quarantined_servers.content is 'Its server.json, as it was read';
comment on column quarantined_servers.status is 'What the other registry says of it: active, deprecated or deleted';
comment on column quarantined_servers.flags is 'What a human should look at before approving';
comment on column quarantined_servers.source is 'Where it was read';
comment on column quarantined_servers.seen_at is 'When it was last read';
comment on column quarantined_servers.decision is 'approved or rejected; null while nobody has decided';
comment on column quarantined_servers.decided_at is 'When';
comment on column quarantined_servers.approved_as is 'The namespace in the public catalog that it was approved as';
alter table quarantined_servers enable row level security, force row level security;
create policy operator on quarantined_servers using (org = app_org() and project = app_project());

-- Versions of servers that came from another registry, under their names there.
create table official_versions (
    org text not null,
    project text not null,
    namespace text not null,
    name text not null,
    version text not null,
    content text not null,
    integrity text not null check (integrity ~ '^sha256-[A-Za-z0-9+/]{43}=$'),
    status text not null check (status in ('active', 'deprecated', 'deleted')),
    latest boolean not null,
    published_at timestamptz not null default clock_timestamp(),
    updated_at timestamptz not null default clock_timestamp(),
    primary key (name, version)
);
create unique index official_versions_latest on official_versions (name) where latest;
create index official_versions_order on official_versions (name collate "C", version collate "C");
create index official_versions_updated on official_versions (updated_at);
comment on table official_versions is 'Approved servers of another registry, as the official API shows them; a version''s content never changes';
comment on column official_versions.org is 'The public catalog''s';
comment on column official_versions.project is 'The public catalog''s';
comment on column official_versions.namespace is 'Its namespace in the public catalog';
comment on column official_versions.name is 'Its name there, `domain/server`';
comment on column official_versions.version is 'Its version there';
comment on column official_versions.content is 'Its server.json, as it was approved';
comment on column official_versions.integrity is 'SHA-256 of the canonical form of `content`, checked at every read';
comment on column official_versions.status is 'active, deprecated or deleted';
comment on column official_versions.latest is 'Whether it is the one that the catalog has now';
comment on column official_versions.published_at is 'When it was approved';
comment on column official_versions.updated_at is 'When its status last changed';

create function official_versions_are_immutable() returns trigger language plpgsql as $$
begin
    if tg_op = 'DELETE' or (new.name, new.version, new.content, new.integrity, new.published_at)
        is distinct from (old.name, old.version, old.content, old.integrity, old.published_at) then
        raise exception 'an approved version never changes' using errcode = 'insufficient_privilege';
    end if;
    return new;
end
$$;
comment on function official_versions_are_immutable() is 'Refuses to change what was approved, to the owner of the table as well';
create trigger official_versions_are_immutable before update or delete on official_versions
    for each row execute function official_versions_are_immutable();
alter table official_versions enable row level security, force row level security;
create policy everybody on official_versions for select using (true);
create policy operator_insert on official_versions for insert with check (org = app_org() and project = app_project());
create policy operator_update on official_versions for update using (org = app_org() and project = app_project());
grant select on official_versions to pml_app;

alter table mcp_servers add column upstream text;
comment on column mcp_servers.upstream is 'The name in another registry that it was approved from; null for all others';
