-- Capabilities: programs that were published under a name, in versions that never change.

create table capabilities (
    org text not null,
    project text not null,
    namespace text not null check (namespace ~ '^[A-Za-z0-9_][A-Za-z0-9_-]{0,127}$'),
    name text not null check (name ~ '^[A-Za-z0-9_][A-Za-z0-9_-]{0,127}$'),
    visibility text not null check (visibility in ('private', 'project', 'org', 'public')),
    owner text not null,
    latest text,
    created_at timestamptz not null default now(),
    primary key (org, project, namespace, name),
    -- Lets versions repeat what decides who sees a row, and follow its changes.
    unique (org, project, namespace, name, visibility, owner),
    foreign key (org, project) references projects (org, name)
);
comment on table capabilities is 'Published programs, by name; what they are is in their versions';
comment on column capabilities.org is 'The owning organisation';
comment on column capabilities.project is 'The owning project';
comment on column capabilities.namespace is 'The name before the colon in its id';
comment on column capabilities.name is 'The name after the colon in its id';
comment on column capabilities.visibility is 'Who may know of it: private (its owner), project, org or public';
comment on column capabilities.owner is 'The principal that published it first';
comment on column capabilities.latest is 'The highest version that is not yanked; null when all are';
comment on column capabilities.created_at is 'When it was first published';

create table capability_versions (
    org text not null,
    project text not null,
    namespace text not null,
    name text not null,
    version text not null check (version ~ '^(0|[1-9][0-9]{0,8})\.(0|[1-9][0-9]{0,8})\.(0|[1-9][0-9]{0,8})$'),
    content text not null,
    code text not null check (length(code) <= 65536),
    integrity text not null check (integrity ~ '^sha256-[A-Za-z0-9+/]{43}=$'),
    routing text not null check (routing in ('client', 'server')),
    published_by text not null,
    published_at timestamptz not null default now(),
    deprecated text check (length(deprecated) between 1 and 1000),
    yanked_at timestamptz,
    visibility text not null,
    owner text not null,
    rank int[] not null generated always as (string_to_array(version, '.')::int[]) stored,
    tool_id text not null generated always as (namespace || ':' || name) stored,
    description text not null generated always as (content::jsonb ->> 'description') stored,
    search tsvector not null generated always as (
        setweight(to_tsvector('english'::regconfig, namespace || ' ' || translate(
            regexp_replace(name, '([a-z0-9])([A-Z])', '\1 \2', 'g'), '_-', '  ')), 'A')
        || setweight(to_tsvector('english'::regconfig, content::jsonb ->> 'description'), 'B')
    ) stored,
    primary key (org, project, namespace, name, version),
    foreign key (org, project, namespace, name, visibility, owner)
        references capabilities (org, project, namespace, name, visibility, owner)
        on update cascade
);
create index capability_versions_tool_id on capability_versions (tool_id, org, project);
comment on table capability_versions is 'What a capability is; a version never changes and is never taken out';
comment on column capability_versions.org is 'The owning organisation';
comment on column capability_versions.project is 'The owning project';
comment on column capability_versions.namespace is 'The name before the colon in its id';
comment on column capability_versions.name is 'The name after the colon in its id';
comment on column capability_versions.version is 'Major, minor and patch';
comment on column capability_versions.content is 'The entry as JSON, without routing and integrity; it has the hash of the code';
comment on column capability_versions.code is 'The program, as it was published';
comment on column capability_versions.integrity is 'SHA-256 of the canonical form of `content`, checked at every read';
comment on column capability_versions.routing is 'Where it ran when it was published; what its tools need today decides';
comment on column capability_versions.published_by is 'The principal that published this version';
comment on column capability_versions.published_at is 'When';
comment on column capability_versions.deprecated is 'Why it should not be used any more; null while it should';
comment on column capability_versions.yanked_at is 'Since when only those who name the version get it; null if all do';
comment on column capability_versions.visibility is 'Its capability''s, repeated for row-level security';
comment on column capability_versions.owner is 'Its capability''s, repeated for row-level security';
comment on column capability_versions.rank is 'The version as numbers, which sort as versions do; generated';
comment on column capability_versions.tool_id is 'The id as programs and permissions write it; generated';
comment on column capability_versions.description is 'What it does; generated';
comment on column capability_versions.search is 'Its words for full-text search; generated';

create function capability_versions_are_immutable() returns trigger language plpgsql as $$
begin
    if tg_op = 'DELETE' or (new.content, new.code, new.integrity, new.version, new.published_by, new.published_at)
        is distinct from (old.content, old.code, old.integrity, old.version, old.published_by, old.published_at) then
        raise exception 'a published version never changes' using errcode = 'insufficient_privilege';
    end if;
    return new;
end
$$;
comment on function capability_versions_are_immutable() is 'Refuses to change what was published, to the owner of the table as well';
create trigger capability_versions_are_immutable before update or delete on capability_versions
    for each row execute function capability_versions_are_immutable();

alter table capabilities enable row level security, force row level security;
alter table capability_versions enable row level security, force row level security;

create policy visible on capabilities for select using (is_visible(org, project, visibility, owner));
create policy tenant_insert on capabilities for insert
    with check (org = app_org() and project = app_project());
create policy tenant_update on capabilities for update
    using (org = app_org() and project = app_project() and is_visible(org, project, visibility, owner))
    with check (org = app_org() and project = app_project());
create policy visible on capability_versions for select using (is_visible(org, project, visibility, owner));
create policy tenant_insert on capability_versions for insert
    with check (org = app_org() and project = app_project());
create policy tenant_update on capability_versions for update
    using (org = app_org() and project = app_project() and is_visible(org, project, visibility, owner))
    with check (org = app_org() and project = app_project());
-- The public catalog is the operator's: the gateway cannot write it, whatever tenant it claims.
create policy catalog_insert on capabilities as restrictive for insert to pml_app with check (org <> 'pml');
create policy catalog_update on capabilities as restrictive for update to pml_app using (org <> 'pml');
create policy catalog_insert on capability_versions as restrictive for insert to pml_app with check (org <> 'pml');
create policy catalog_update on capability_versions as restrictive for update to pml_app using (org <> 'pml');

grant select, insert, update (latest, visibility) on capabilities to pml_app;
grant select, insert, update (deprecated, yanked_at) on capability_versions to pml_app;

create or replace view pml_registry with (security_invoker = true) as
select
    'mcp-tool'::text as record_type,
    t.org,
    t.project,
    t.namespace,
    t.name,
    t.tool_id,
    t.description,
    t.content,
    t.integrity,
    effective_routing(s.routing, t.namespace, t.tool_id) as routing,
    s.result,
    t.read_only,
    t.deterministic,
    t.visibility,
    t.owner,
    t.search,
    null::text as code,
    null::text as deprecated
from tools t
join mcp_servers s on s.org = t.org and s.project = t.project and s.namespace = t.namespace
union all
select
    'capability'::text,
    v.org,
    v.project,
    v.namespace,
    v.name,
    v.tool_id,
    v.description,
    v.content,
    v.integrity,
    v.routing,
    'value'::text,
    false,
    false,
    v.visibility,
    v.owner,
    v.search,
    v.code,
    v.deprecated
from capability_versions v
join capabilities c on c.org = v.org and c.project = v.project and c.namespace = v.namespace and c.name = v.name
where v.version = c.latest;
comment on column pml_registry.code is 'The program of a capability';
comment on column pml_registry.deprecated is 'Why the capability should not be used any more';

-- Names that a reader takes for one another have the same skeleton.
create function name_skeleton(name text) returns text immutable parallel safe language sql
    return replace(replace(translate(lower(name), '01i5-_', 'olls'), 'rn', 'm'), 'vv', 'w');
comment on function name_skeleton(text) is 'The name without what a reader overlooks: case, separators, and letters that look alike';
create index mcp_servers_skeleton on mcp_servers (name_skeleton(namespace));
create index capabilities_skeleton on capabilities (name_skeleton(namespace));
