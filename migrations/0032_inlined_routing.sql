-- The routing of an entry, in a form that costs a look-up next to nothing.

-- Postgres never inlines a scalar function with sub-selects: each statement that called `effective_routing` parsed and
-- planned its body anew, which took longer than everything else that a look-up by name does. A function in `from` is
-- inlined, if it has the language `sql`, is not volatile, and has no settings of its own.
create function routing_of(row_routing text, row_namespace text, row_tool_id text)
    returns table (routing text) stable parallel safe language sql
begin atomic
    select coalesce(
        row_routing,
        (select r.routing from routing_rules r where r.pattern = row_tool_id),
        (select r.routing from routing_rules r where r.pattern = row_namespace || ':*'),
        (select r.routing from routing_rules r where r.pattern = '*'),
        'client');
end;
comment on function routing_of(text, text, text) is
    'One row: the row''s own routing, else the most specific rule, else client';

-- For statements that call it for many rows, and for gateways of the last release.
create or replace function effective_routing(row_routing text, row_namespace text, row_tool_id text)
    returns text stable parallel safe language sql
    return (select o.routing from routing_of(row_routing, row_namespace, row_tool_id) o);

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
    (select o.routing from routing_of(s.routing, t.namespace, t.tool_id) o) as routing,
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
