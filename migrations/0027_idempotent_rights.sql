-- The answer to a request is repeated only for whoever may still do what its first sender could.

-- The defaults are for gateways of the last release, which do not say it: then only an owner with every right is told.
alter table idempotency_keys
    add column rights text[] not null default '{execute,read,publish,admin}'
        check (rights <@ '{execute,read,publish,admin}'),
    add column org_role text default 'owner' check (org_role in ('viewer', 'member', 'admin', 'owner'));
comment on column idempotency_keys.rights is 'What its first sender might do; whoever may do less is not told the answer';
comment on column idempotency_keys.org_role is 'What the first sender was in the organisation; null for nothing';
grant update (rights, org_role) on idempotency_keys to pml_app;
