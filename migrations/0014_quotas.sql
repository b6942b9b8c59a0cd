-- How often tools may be called on the gateway.

create table quotas (
    scope text not null check (scope ~ '^(\*|[A-Za-z0-9_][A-Za-z0-9_-]{0,127}(\.[A-Za-z0-9_][A-Za-z0-9_-]{0,127})?)$'),
    pattern text not null check (pattern ~ '^(\*|[A-Za-z0-9_-]+:(\*|[A-Za-z0-9_-]+))$'),
    calls int not null check (calls >= 0),
    window_seconds int not null check (window_seconds in (60, 3600, 86400)),
    updated_at timestamptz not null default now(),
    primary key (scope, pattern)
);
comment on table quotas is 'How often tools may be called on the gateway; belongs to the operator, and no tenant can read it. All that match a call count it';
comment on column quotas.scope is '`org.project`, `org` for all its projects together, or `*` for each scope by itself';
comment on column quotas.pattern is '`*`, `namespace:*` or `namespace:action`';
comment on column quotas.calls is 'So many calls; none with 0';
comment on column quotas.window_seconds is 'In so long: a minute, an hour or a day, over which they come in again';
comment on column quotas.updated_at is 'When it last changed';

-- The gateway reads them for all scopes at once; only the owner of the table writes them.
grant select on quotas to pml_app;
create trigger notify_routes after insert or update or delete or truncate on quotas
    for each statement execute function notify_routes();
