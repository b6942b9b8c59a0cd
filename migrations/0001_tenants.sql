-- Tenants, their keys and the audit log; the settings that say who is asking.

do $$
begin
    if current_setting('server_version_num')::int < 150000 then
        raise exception 'Postgres 15 or newer is needed, this is %', current_setting('server_version');
    end if;
    if not exists (select from pg_roles where rolname = 'pml_app') then
        raise exception 'role "pml_app" is missing'
            using hint = 'create role pml_app login password ''…'' nosuperuser nobypassrls';
    end if;
    if exists (select from pg_roles where rolname = 'pml_app' and (rolsuper or rolbypassrls)) then
        raise exception 'role "pml_app" could pass by row-level security'
            using hint = 'alter role pml_app nosuperuser nobypassrls';
    end if;
end
$$;

create extension if not exists pg_trgm;

grant usage on schema public to pml_app;
revoke create on schema public from pml_app;

-- Who is asking. Set at the start of every transaction and for that transaction
-- only: a pooled connection carries nothing over to the next caller. Without
-- them the answers are null, and null equals no tenant.
create function app_org() returns text stable parallel safe language sql
    return nullif(current_setting('app.org', true), '');
comment on function app_org() is 'The organisation on whose behalf this transaction runs; null for anonymous';

create function app_project() returns text stable parallel safe language sql
    return nullif(current_setting('app.project', true), '');
comment on function app_project() is 'The project on whose behalf this transaction runs; null for anonymous';

create function app_principal() returns text stable parallel safe language sql
    return nullif(current_setting('app.principal', true), '');
comment on function app_principal() is 'The person or service that asks; null for anonymous';

create function app_key_hash() returns bytea stable parallel safe language sql
    return decode(nullif(current_setting('app.key_hash', true), ''), 'hex');
comment on function app_key_hash() is 'The hash of the key that is being authenticated, before its tenant is known';

create table orgs (
    name text primary key check (name ~ '^[A-Za-z0-9_][A-Za-z0-9_-]{0,127}$'),
    created_at timestamptz not null default now()
);
comment on table orgs is 'Organisations: the first half of a scope';
comment on column orgs.name is 'The name in `org.project`; never given to another owner again';
comment on column orgs.created_at is 'When it was made';

create table projects (
    org text not null references orgs (name),
    name text not null check (name ~ '^[A-Za-z0-9_][A-Za-z0-9_-]{0,127}$'),
    created_at timestamptz not null default now(),
    primary key (org, name)
);
comment on table projects is 'Projects: the second half of a scope; `org.project` is the tenant';
comment on column projects.org is 'The organisation';
comment on column projects.name is 'The name in `org.project`';
comment on column projects.created_at is 'When it was made';

create table api_keys (
    id uuid primary key,
    org text not null,
    project text not null,
    principal text not null check (principal ~ '^[A-Za-z0-9._:@+-]{1,128}$'),
    name text not null default '' check (length(name) <= 200),
    key_hash bytea not null unique check (length(key_hash) = 32),
    rights text[] not null check (rights <@ array['execute', 'read', 'publish', 'admin'] and cardinality(rights) > 0),
    created_at timestamptz not null default now(),
    expires_at timestamptz,
    revoked_at timestamptz,
    foreign key (org, project) references projects (org, name)
);
create index api_keys_scope on api_keys (org, project, created_at, id);
comment on table api_keys is 'API keys; the keys themselves are shown once and never stored';
comment on column api_keys.id is 'Names the key in lists and logs';
comment on column api_keys.org is 'The organisation whose requests it signs';
comment on column api_keys.project is 'The project whose requests it signs';
comment on column api_keys.principal is 'Who acts with it; `private` entries belong to a principal';
comment on column api_keys.name is 'What its owner calls it';
comment on column api_keys.key_hash is 'SHA-256 of the whole key; the key has 178 random bits, so no salt is needed';
comment on column api_keys.rights is 'What it may do: execute, read, publish, admin';
comment on column api_keys.created_at is 'When it was made';
comment on column api_keys.expires_at is 'From when on it is refused; null means never';
comment on column api_keys.revoked_at is 'Since when it is refused; null means it is not';

create table audit_log (
    id bigint generated always as identity primary key,
    org text not null,
    project text not null,
    at timestamptz not null default clock_timestamp(),
    principal text not null,
    action text not null,
    target text not null,
    outcome text not null,
    detail jsonb not null default '{}',
    foreign key (org, project) references projects (org, name)
);
create index audit_log_scope on audit_log (org, project, id);
comment on table audit_log is 'What was decided, by whom, about what; append-only';
comment on column audit_log.id is 'The order of events';
comment on column audit_log.org is 'The organisation concerned';
comment on column audit_log.project is 'The project concerned';
comment on column audit_log.at is 'When it was decided, before its effect';
comment on column audit_log.principal is 'Who acted';
comment on column audit_log.action is 'What was done, for example `key.create`';
comment on column audit_log.target is 'To what';
comment on column audit_log.outcome is 'How it was decided: allowed, refused or failed';
comment on column audit_log.detail is 'Further facts; never a secret, code, arguments or results';

create function audit_log_is_append_only() returns trigger language plpgsql as $$
begin
    raise exception 'the audit log is append-only' using errcode = 'insufficient_privilege';
end
$$;
comment on function audit_log_is_append_only() is 'Refuses to change what was recorded, to the owner of the table as well';
create trigger audit_log_is_append_only before update or delete or truncate on audit_log
    for each statement execute function audit_log_is_append_only();

alter table orgs enable row level security, force row level security;
alter table projects enable row level security, force row level security;
alter table api_keys enable row level security, force row level security;
alter table audit_log enable row level security, force row level security;

create policy tenant on orgs using (name = app_org());
create policy tenant on projects using (org = app_org() and name = app_project());
create policy tenant on api_keys using (org = app_org() and project = app_project());
-- Whoever presents a key may read its row: that is how its tenant is found.
create policy presented on api_keys for select using (key_hash = app_key_hash());
create policy tenant on audit_log using (org = app_org() and project = app_project());

grant select on orgs, projects to pml_app;
grant select, insert, update (revoked_at, expires_at) on api_keys to pml_app;
grant select, insert on audit_log to pml_app;

create function key_by_hash(presented bytea)
    returns table (id uuid, org text, project text, principal text, rights text[], expires_at timestamptz)
    volatile language plpgsql as $$
begin
    perform set_config('app.key_hash', encode(presented, 'hex'), true);
    return query
        select k.id, k.org, k.project, k.principal, k.rights, k.expires_at
        from api_keys k
        where k.key_hash = presented
            and k.revoked_at is null
            and (k.expires_at is null or k.expires_at > now());
    perform set_config('app.key_hash', '', true);
end
$$;
comment on function key_by_hash(bytea) is 'Finds a valid key by the hash of what was presented, in one round trip, with the caller''s rights';

create function notify_keys() returns trigger language plpgsql as $$
begin
    perform pg_notify('pml_keys', '');
    return null;
end
$$;
comment on function notify_keys() is 'Tells every gateway to forget the keys it remembers';
create trigger notify_keys after update or delete or truncate on api_keys
    for each statement execute function notify_keys();
