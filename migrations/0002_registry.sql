-- MCP servers and their tools, and the one view in which ids are looked up.

create function is_visible(row_org text, row_project text, row_visibility text, row_owner text)
    returns boolean stable parallel safe language sql
    return row_visibility = 'public'
        or (row_org = app_org()
            and (row_visibility = 'org'
                or (row_project = app_project()
                    and (row_visibility = 'project' or row_owner = app_principal()))));
comment on function is_visible(text, text, text, text) is 'Tells whether whoever asks may know of an entry';

create table mcp_servers (
    org text not null,
    project text not null,
    namespace text not null check (namespace ~ '^[A-Za-z0-9_][A-Za-z0-9_-]{0,127}$'),
    content text not null,
    integrity text not null check (integrity ~ '^sha256-[A-Za-z0-9+/]{43}=$'),
    routing text check (routing in ('client', 'server')),
    result text not null default 'text' check (result in ('text', 'json', 'value')),
    visibility text not null check (visibility in ('private', 'project', 'org', 'public')),
    owner text not null,
    created_at timestamptz not null default now(),
    updated_at timestamptz not null default now(),
    kind text not null generated always as (content::jsonb ->> 'type') stored
        check (kind in ('stdio', 'http', 'native')),
    description text not null generated always as (content::jsonb ->> 'description') stored,
    tool_count int not null generated always as (jsonb_array_length(content::jsonb -> 'tools')) stored,
    primary key (org, project, namespace),
    -- Lets `tools` repeat what decides who sees a row, and follow its changes.
    unique (org, project, namespace, visibility, owner),
    foreign key (org, project) references projects (org, name)
);
comment on table mcp_servers is 'MCP servers: how each is started or reached, and what it offers';
comment on column mcp_servers.org is 'The owning organisation; `pml` with project `mcp` is the public catalog';
comment on column mcp_servers.project is 'The owning project';
comment on column mcp_servers.namespace is 'The name before the colon in its tools'' ids';
comment on column mcp_servers.content is 'The entry as JSON, in the publisher''s words and order, without routing and integrity; text, because jsonb would reorder it';
comment on column mcp_servers.integrity is 'SHA-256 of the canonical form of `content`, checked at every read';
comment on column mcp_servers.routing is 'Where its tools run, set by the operator; null leaves it to the rules';
comment on column mcp_servers.result is 'How a text result is read, set by the operator';
comment on column mcp_servers.visibility is 'Who may know of it: private (its owner), project, org or public';
comment on column mcp_servers.owner is 'The principal that published it';
comment on column mcp_servers.created_at is 'When it first appeared';
comment on column mcp_servers.updated_at is 'When its content or placement last changed';
comment on column mcp_servers.kind is 'stdio, http or native; generated, so it cannot differ from the content';
comment on column mcp_servers.description is 'What it does; generated';
comment on column mcp_servers.tool_count is 'How many tools it offers; generated';

create table tools (
    org text not null,
    project text not null,
    namespace text not null,
    name text not null check (name ~ '^[A-Za-z0-9_][A-Za-z0-9_-]{0,127}$'),
    content text not null,
    integrity text not null check (integrity ~ '^sha256-[A-Za-z0-9+/]{43}=$'),
    read_only boolean not null default false,
    deterministic boolean not null default false,
    visibility text not null,
    owner text not null,
    tool_id text not null generated always as (namespace || ':' || name) stored,
    description text not null generated always as (content::jsonb ->> 'description') stored,
    search tsvector not null generated always as (
        setweight(to_tsvector('english'::regconfig, namespace || ' ' || translate(
            regexp_replace(name, '([a-z0-9])([A-Z])', '\1 \2', 'g'), '_-', '  ')), 'A')
        || setweight(to_tsvector('english'::regconfig, content::jsonb ->> 'description'), 'B')
    ) stored,
    primary key (org, project, namespace, name),
    foreign key (org, project, namespace, visibility, owner)
        references mcp_servers (org, project, namespace, visibility, owner)
        on update cascade on delete cascade
);
create index tools_tool_id on tools (tool_id, org, project);
comment on table tools is 'The tools of MCP servers';
comment on column tools.org is 'The owning organisation';
comment on column tools.project is 'The owning project';
comment on column tools.namespace is 'Its server';
comment on column tools.name is 'The name after the colon in its id';
comment on column tools.content is 'The tool''s own entry as JSON, with what starts or reaches its server, so that a pin covers both';
comment on column tools.integrity is 'SHA-256 of the canonical form of `content`, checked at every read';
comment on column tools.read_only is 'It changes nothing and may run early; set by the operator, never by the upstream''s hint';
comment on column tools.deterministic is 'Equal arguments give equal results; set by the operator';
comment on column tools.visibility is 'Its server''s, repeated for row-level security';
comment on column tools.owner is 'Its server''s, repeated for row-level security';
comment on column tools.tool_id is 'The id as programs and permissions write it; generated';
comment on column tools.description is 'What it does; generated';
comment on column tools.search is 'Its words for full-text search; generated';

alter table mcp_servers enable row level security, force row level security;
alter table tools enable row level security, force row level security;

-- Reading goes by `visible` alone: a policy for every command would also let the
-- project read what is private to one of its members.
create policy visible on mcp_servers for select using (is_visible(org, project, visibility, owner));
create policy tenant_insert on mcp_servers for insert
    with check (org = app_org() and project = app_project());
create policy tenant_update on mcp_servers for update
    using (org = app_org() and project = app_project() and is_visible(org, project, visibility, owner))
    with check (org = app_org() and project = app_project());
create policy tenant_delete on mcp_servers for delete
    using (org = app_org() and project = app_project() and is_visible(org, project, visibility, owner));
create policy visible on tools for select using (is_visible(org, project, visibility, owner));
create policy tenant_insert on tools for insert
    with check (org = app_org() and project = app_project());
create policy tenant_update on tools for update
    using (org = app_org() and project = app_project() and is_visible(org, project, visibility, owner))
    with check (org = app_org() and project = app_project());
create policy tenant_delete on tools for delete
    using (org = app_org() and project = app_project() and is_visible(org, project, visibility, owner));
-- The public catalog is the operator's: the gateway cannot write it, whatever tenant it claims.
create policy catalog_insert on mcp_servers as restrictive for insert to pml_app with check (org <> 'pml');
create policy catalog_update on mcp_servers as restrictive for update to pml_app using (org <> 'pml');
create policy catalog_delete on mcp_servers as restrictive for delete to pml_app using (org <> 'pml');
create policy catalog_insert on tools as restrictive for insert to pml_app with check (org <> 'pml');
create policy catalog_update on tools as restrictive for update to pml_app using (org <> 'pml');
create policy catalog_delete on tools as restrictive for delete to pml_app using (org <> 'pml');

grant select, insert, update, delete on mcp_servers, tools to pml_app;
