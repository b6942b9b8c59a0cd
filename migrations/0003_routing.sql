-- Where tools run: the operator's rules, and the view that applies them.

create table routing_rules (
    pattern text primary key check (pattern ~ '^(\*|[A-Za-z0-9_-]+:(\*|[A-Za-z0-9_-]+))$'),
    routing text not null check (routing in ('client', 'server')),
    origin text not null check (origin in ('shipped', 'operator')),
    updated_at timestamptz not null default now()
);
comment on table routing_rules is 'Which tools run where; belongs to the operator, not to a tenant. The most specific pattern wins';
comment on column routing_rules.pattern is '`*`, `namespace:*` or `namespace:action`';
comment on column routing_rules.routing is 'client or server';
comment on column routing_rules.origin is 'shipped rules follow the release, the operator''s stay';
comment on column routing_rules.updated_at is 'When it last changed';

-- The gateway reads the rules; only the owner of the table writes them.
grant select on routing_rules to pml_app;

create function effective_routing(row_routing text, row_namespace text, row_tool_id text)
    returns text stable parallel safe language sql
    return coalesce(
        row_routing,
        (select routing from routing_rules where pattern = row_tool_id),
        (select routing from routing_rules where pattern = row_namespace || ':*'),
        (select routing from routing_rules where pattern = '*'),
        'client');
comment on function effective_routing(text, text, text) is 'The row''s own routing, else the most specific rule, else client';

create view pml_registry with (security_invoker = true) as
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
    t.search
from tools t
join mcp_servers s on s.org = t.org and s.project = t.project and s.namespace = t.namespace;
comment on view pml_registry is 'Everything a program can call, one row per id and scope, with the rights of whoever asks; the one place ids are looked up';
comment on column pml_registry.record_type is '`mcp-tool`, or `capability` for a published program';
comment on column pml_registry.routing is 'Where it runs, by its server''s row or by the rules';

grant select on pml_registry to pml_app;

create function notify_routes() returns trigger language plpgsql as $$
begin
    perform pg_notify('pml_routes', tg_table_name);
    return null;
end
$$;
comment on function notify_routes() is 'Tells every gateway to read the routes anew; once per statement, since NOTIFY serialises commits';
create trigger notify_routes after insert or update or delete or truncate on routing_rules
    for each statement execute function notify_routes();
create trigger notify_routes after insert or update or delete or truncate on mcp_servers
    for each statement execute function notify_routes();
create trigger notify_routes after insert or update or delete or truncate on tools
    for each statement execute function notify_routes();
