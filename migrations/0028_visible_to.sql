-- The rule of who may know of an entry, in one place: for the policies and for the queries, which pass their tenant.

-- Postgres inlines it, so indexes are used as if its body were written out in the query. That needs the language
-- `sql`, no `security definer`, no settings of its own, and each argument of a caller used once or cheap to repeat.
create function visible_to(
    asker_org text, asker_project text, asker_principal text,
    row_org text, row_project text, row_visibility text, row_owner text
)
    returns boolean immutable parallel safe language sql
    return row_visibility = 'public'
        or (row_org = asker_org
            and (row_visibility = 'org'
                or (row_project = asker_project
                    and (row_visibility = 'project'
                        or (row_visibility = 'private' and row_owner = asker_principal)))));
comment on function visible_to(text, text, text, text, text, text, text) is
    'Tells whether a tenant may know of an entry: the one place of this rule';

create or replace function is_visible(row_org text, row_project text, row_visibility text, row_owner text)
    returns boolean stable parallel safe language sql
    return visible_to(
        app_org(), app_project(), app_principal(), row_org, row_project, row_visibility, row_owner);
comment on function is_visible(text, text, text, text) is
    'Tells whether the tenant of this transaction may know of an entry, for policies';
