-- Stored keys of users for the upstreams of their tools: sealed by a data key of their organisation, and that by a
-- master key that the database never sees.

create table master_keys (
    id text primary key check (id ~ '^[0-9a-f]{16}$'),
    check_value bytea not null,
    is_current boolean not null,
    created_at timestamptz not null default now()
);
create unique index master_keys_current on master_keys (is_current) where is_current;
comment on table master_keys is 'The master keys that data keys are wrapped with, by name; the keys themselves are never stored. Belongs to the operator, not to a tenant';
comment on column master_keys.id is 'The name of the key: a part of its hash';
comment on column master_keys.check_value is 'A known text, sealed with the key; who can open it has the right one';
comment on column master_keys.is_current is 'New data keys are wrapped with it; the others are being replaced';
comment on column master_keys.created_at is 'When it was first used';

create table data_keys (
    org text not null references orgs (name),
    version int not null check (version > 0),
    -- A master key that is still needed cannot be taken out, whoever wraps with it at the same time.
    master_key text not null references master_keys (id),
    wrapped bytea not null check (length(wrapped) between 1 and 256),
    uses bigint not null default 0 check (uses between 0 and 1073741824),
    created_at timestamptz not null default now(),
    rewrapped_at timestamptz,
    primary key (org, version)
);
create index data_keys_master_key on data_keys (master_key);
comment on table data_keys is 'The keys that seal the secrets of an organisation, wrapped by a master key';
comment on column data_keys.org is 'The organisation';
comment on column data_keys.version is 'The newest one seals; the older ones only open';
comment on column data_keys.master_key is 'What it is wrapped with';
comment on column data_keys.wrapped is 'The key, sealed with the master key for this organisation and version';
comment on column data_keys.uses is 'How often it has sealed; nonces are random, so it ends at 2^30, long before two of them could meet';
comment on column data_keys.created_at is 'When it was made';
comment on column data_keys.rewrapped_at is 'When it was last wrapped with another master key';

create table secrets (
    org text not null,
    project text not null,
    owner text not null check (owner = '' or owner ~ '^[A-Za-z0-9._:@+-]{1,128}$'),
    name text not null check (name ~ '^[A-Z][A-Z0-9_]{0,127}$'),
    version bigint not null check (version > 0),
    data_key int not null,
    sealed bytea not null check (length(sealed) <= 16384),
    created_at timestamptz not null default now(),
    updated_at timestamptz not null default now(),
    primary key (org, project, owner, name),
    foreign key (org, project) references projects (org, name),
    foreign key (org, data_key) references data_keys (org, version)
);
comment on table secrets is 'Keys that users stored for the upstreams of their tools; only ever sealed';
comment on column secrets.org is 'The organisation';
comment on column secrets.project is 'The project';
comment on column secrets.owner is 'The principal whose own it is; empty for one of the whole project';
comment on column secrets.name is 'The variable that it stands for, as in `env_required` of an entry';
comment on column secrets.version is 'Rises with each new value';
comment on column secrets.data_key is 'The version of the data key that sealed it';
comment on column secrets.sealed is 'The value, sealed for this organisation, project, owner, name and version';
comment on column secrets.created_at is 'When it was first stored';
comment on column secrets.updated_at is 'When it got its present value';

alter table master_keys enable row level security, force row level security;
alter table data_keys enable row level security, force row level security;
alter table secrets enable row level security, force row level security;

create policy known on master_keys for select using (true);
-- A gateway names the first master key; the operator all others.
create policy first on master_keys for insert to pml_app with check (is_current);
create policy operator on master_keys to current_user using (app_org() = 'pml');
create policy tenant on data_keys using (org = app_org());
-- The operator acts for the public scope, and wraps the keys of all organisations anew.
create policy operator on data_keys to current_user using (app_org() = 'pml');
create policy tenant on secrets
    using (org = app_org() and project = app_project() and (owner = '' or owner = app_principal()));

grant select, insert on master_keys to pml_app;
grant select, insert, update (uses) on data_keys to pml_app;
grant select, insert, update (version, data_key, sealed, updated_at), delete on secrets to pml_app;
