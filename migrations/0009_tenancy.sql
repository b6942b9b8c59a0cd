-- Who belongs to an organisation and as what; what was deleted and stays so.

create function app_deleting() returns boolean stable parallel safe language sql
    return coalesce(current_setting('app.deleting', true) = 'on', false);
comment on function app_deleting() is 'Tells whether this transaction deletes a project, and so reaches what is private in it';

-- A transaction that names an organisation and no project acts for the whole organisation: it sees its projects
-- and members, and nothing that is a project's own.
alter policy tenant on projects
    using (org = app_org() and (app_project() is null or name = app_project()));

alter table orgs add column deleted_at timestamptz;
comment on column orgs.deleted_at is 'Since when it is no more; its name is never given again';
alter table projects add column deleted_at timestamptz;
comment on column projects.deleted_at is 'Since when it is no more; its name is never given again';
grant insert (org, name), update (deleted_at) on projects to pml_app;
-- The operator acts for the public scope, and lists all organisations.
create policy operator on orgs for select to current_user using (app_org() = 'pml');

create function role_rank(role text) returns integer immutable parallel safe language sql
    return case role when 'owner' then 4 when 'admin' then 3 when 'member' then 2 when 'viewer' then 1 else 0 end;
comment on function role_rank(text) is 'The place of a role among the others; 0 for none';

create function role_rights(role text) returns text[] immutable parallel safe language sql
    return case role
        when 'owner' then array['execute', 'read', 'publish', 'admin']
        when 'admin' then array['execute', 'read', 'publish', 'admin']
        when 'member' then array['execute', 'read', 'publish']
        when 'viewer' then array['read']
        else array[]::text[]
    end;
comment on function role_rights(text) is 'What a role may do at most; nothing for none';

create table users (
    org text not null references orgs (name),
    principal text not null check (principal ~ '^[A-Za-z0-9._:@+-]{1,128}$'),
    created_at timestamptz not null default now(),
    primary key (org, principal)
);
comment on table users is 'Principals that are or were members of an organisation; each organisation has its own';
comment on column users.org is 'The organisation';
comment on column users.principal is 'The name of the person, service or key';
comment on column users.created_at is 'When it first became a member';

create table memberships (
    org text not null,
    project text not null default '',
    principal text not null,
    role text check (role in ('owner', 'admin', 'member', 'viewer')),
    created_at timestamptz not null default now(),
    updated_at timestamptz not null default now(),
    project_name text generated always as (nullif(project, '')) stored,
    primary key (org, project, principal),
    foreign key (org, principal) references users (org, principal),
    foreign key (org, project_name) references projects (org, name),
    check (project = '' or role is distinct from 'owner')
);
create index memberships_principal on memberships (org, principal);
comment on table memberships is 'What principals are in an organisation, or in one project of it';
comment on column memberships.org is 'The organisation';
comment on column memberships.project is 'The one project that the role is for; empty for the whole organisation';
comment on column memberships.principal is 'Who has the role';
comment on column memberships.role is 'The role; null since it was taken away, which leaves the principal''s keys and tokens with nothing';
comment on column memberships.created_at is 'When it was first given';
comment on column memberships.updated_at is 'When it was last changed';
comment on column memberships.project_name is 'The project, or null; generated, so that it must exist';

create table tombstones (
    org text not null,
    project text not null,
    namespace text not null,
    name text not null default '',
    visibility text not null check (visibility in ('private', 'project', 'org', 'public')),
    owner text not null,
    deleted_by text not null,
    deleted_at timestamptz not null default now(),
    primary key (org, project, namespace, name),
    foreign key (org, project) references projects (org, name)
);
comment on table tombstones is 'Entries that were deleted: whoever could see them is told so, and their names are not given to others. Whole projects have `projects.deleted_at`';
comment on column tombstones.org is 'The organisation';
comment on column tombstones.project is 'The project';
comment on column tombstones.namespace is 'The namespace';
comment on column tombstones.name is 'The name of a capability; empty for an MCP server with all its tools';
comment on column tombstones.visibility is 'Who could know of the entry: private (its owner), project, org or public';
comment on column tombstones.owner is 'The principal that had published it';
comment on column tombstones.deleted_by is 'Who deleted it';
comment on column tombstones.deleted_at is 'When';

alter table users enable row level security, force row level security;
alter table memberships enable row level security, force row level security;
alter table tombstones enable row level security, force row level security;

create policy organisation on users using (org = app_org() and app_project() is null);
-- Whoever has a role in a project becomes a user, whoever gives it; the list is the organisation's.
create policy named on users for insert with check (org = app_org());
-- A project sees who may act in it. It gives roles for itself; those of the organisation come from there.
create policy visible on memberships for select
    using (org = app_org() and (app_project() is null or project in ('', app_project())));
create policy tenant_insert on memberships for insert
    with check (org = app_org() and (app_project() is null or project = app_project()));
create policy tenant_update on memberships for update
    using (org = app_org() and (app_project() is null or project = app_project()))
    with check (org = app_org() and (app_project() is null or project = app_project()));
create policy visible on tombstones for select using (is_visible(org, project, visibility, owner));
create policy tenant_insert on tombstones for insert
    with check (org = app_org() and project = app_project());
create policy catalog_insert on tombstones as restrictive for insert to pml_app with check (org <> 'pml');

grant select, insert on users to pml_app;
grant select, insert, update (role, updated_at) on memberships to pml_app;
grant select, insert on tombstones to pml_app;

-- What is closed is nobody's to see, its owner's neither.
alter table capabilities drop constraint capabilities_visibility_check;
alter table capabilities add constraint capabilities_visibility_check
    check (visibility in ('private', 'project', 'org', 'public', 'deleted'));
comment on column capabilities.visibility is
    'Who may know of it: private (its owner), project, org or public; deleted is nobody, and the row stays for its versions';
create or replace function is_visible(row_org text, row_project text, row_visibility text, row_owner text)
    returns boolean stable parallel safe language sql
    return row_visibility = 'public'
        or (row_org = app_org()
            and (row_visibility = 'org'
                or (row_project = app_project()
                    and (row_visibility = 'project'
                        or (row_visibility = 'private' and row_owner = app_principal())))));

-- Whoever deletes a project deletes what is private to others in it as well.
create policy deletion on mcp_servers using (org = app_org() and project = app_project() and app_deleting());
create policy deletion on capabilities using (org = app_org() and project = app_project() and app_deleting());
create policy deletion on secrets using (org = app_org() and project = app_project() and app_deleting());

create function project_is_open() returns trigger language plpgsql as $$
declare
    ended timestamptz;
begin
    -- The lock waits for a deletion that is under way. A project that is not there is left to the policies and to
    -- the foreign key.
    select p.deleted_at into ended from projects p
        where p.org = new.org and p.name = new.project for key share;
    if ended is not null then
        raise exception 'the project was deleted' using errcode = 'foreign_key_violation';
    end if;
    return new;
end
$$;
comment on function project_is_open() is 'Refuses new rows in a deleted project, also those of a request that had begun before';
create trigger project_is_open before insert on api_keys for each row execute function project_is_open();
create trigger project_is_open before insert on mcp_servers for each row execute function project_is_open();
create trigger project_is_open before insert on capabilities for each row execute function project_is_open();
create trigger project_is_open before insert on capability_versions for each row execute function project_is_open();
create trigger project_is_open before insert on secrets for each row execute function project_is_open();
create trigger project_is_open before insert on memberships for each row execute function project_is_open();

alter table api_keys add column org_role text check (org_role in ('owner', 'admin', 'member', 'viewer'));
comment on column api_keys.org_role is
    'The highest role in the organisation that can act through the key: its maker''s, so that no project makes itself a key of the owner; null is none';

-- What a principal may do in a project, if it is or was a member: the highest of its roles counts.
create function standing(of_org text, of_project text, of_principal text)
    returns table (is_open boolean, is_bound boolean, role text, org_role text, rights text[])
    stable language sql as $$
    select
        exists (select from projects p where p.org = of_org and p.name = of_project and p.deleted_at is null),
        found.roles is not null,
        found.roles[1],
        found.org_role,
        role_rights(found.roles[1])
    from (
        select array_agg(m.role order by role_rank(m.role) desc) as roles,
            max(m.role) filter (where m.project = '') as org_role
        from memberships m
        where m.org = of_org and m.project in ('', of_project) and m.principal = of_principal
    ) found
$$;
comment on function standing(text, text, text) is 'What a principal is in a project: unbound when it never was a member, bound without a role when it was';

create function rights_within(wanted text[], allowed text[]) returns text[]
    immutable parallel safe language sql
    return array(select unnest(wanted) intersect select unnest(allowed));
comment on function rights_within(text[], text[]) is 'The rights that are in both lists';

-- With the role that can act through the key, and with no right that its principal's membership lacks.
drop function key_by_hash(bytea);
create function key_by_hash(presented bytea)
    returns table (id uuid, org text, project text, principal text, rights text[], expires_at timestamptz, org_role text)
    volatile language plpgsql as $$
declare
    found_key api_keys;
    its record;
begin
    perform set_config('app.key_hash', encode(presented, 'hex'), true);
    select k.* into found_key from api_keys k
        where k.key_hash = presented
            and k.revoked_at is null
            and (k.expires_at is null or k.expires_at > now());
    perform set_config('app.key_hash', '', true);
    if found_key.id is null then
        return;
    end if;
    perform set_config('app.org', found_key.org, true), set_config('app.project', found_key.project, true);
    select s.* into its from standing(found_key.org, found_key.project, found_key.principal) s;
    perform set_config('app.org', '', true), set_config('app.project', '', true);
    if not its.is_open or (its.is_bound and its.role is null) then
        return;
    end if;
    id := found_key.id;
    org := found_key.org;
    project := found_key.project;
    principal := found_key.principal;
    rights := case when its.is_bound then rights_within(found_key.rights, its.rights) else found_key.rights end;
    expires_at := found_key.expires_at;
    org_role := case when role_rank(its.org_role) <= role_rank(found_key.org_role)
        then its.org_role else found_key.org_role end;
    return next;
end
$$;
comment on function key_by_hash(bytea) is 'Finds a valid key by the hash of what was presented, in one round trip, with the caller''s rights';

create trigger notify_keys after insert or update or delete or truncate on memberships
    for each statement execute function notify_keys();
create trigger notify_keys after update on projects
    for each statement execute function notify_keys();

-- Sessions name the installation that made them, so that another one with the same master key refuses them.
do $$
begin
    execute format(
        'create function installation_id() returns uuid immutable parallel safe language sql return %L::uuid',
        gen_random_uuid());
end
$$;
comment on function installation_id() is 'Names this database among all others; made with it';
