-- A key can take another's place, a request is done once, and there are limits on how many come.

alter table api_keys add column replaced_by uuid references api_keys (id);
comment on column api_keys.replaced_by is 'The key that took its place when it was rotated; null means none did';
grant update (replaced_by) on api_keys to pml_app;

create table idempotency_keys (
    org text not null,
    project text not null,
    principal text not null,
    key_hash bytea not null check (length(key_hash) = 32),
    request_hash bytea not null check (length(request_hash) = 32),
    claimed_at timestamptz not null default clock_timestamp(),
    status smallint check (status between 100 and 599),
    answer text check (length(answer) <= 1048576),
    primary key (org, project, principal, key_hash),
    foreign key (org, project) references projects (org, name),
    check ((status is null) = (answer is null))
);
create index idempotency_keys_age on idempotency_keys (org, project, claimed_at);
comment on table idempotency_keys is 'Requests that carry an `Idempotency-Key`, for 24 hours: each is done once';
comment on column idempotency_keys.org is 'The organisation whose request it is';
comment on column idempotency_keys.project is 'The project whose request it is';
comment on column idempotency_keys.principal is 'Who sent it; nobody else is given the answer';
comment on column idempotency_keys.key_hash is 'SHA-256 of the header''s value';
comment on column idempotency_keys.request_hash is 'SHA-256 of that value and of the request; without the value nobody can try out requests';
comment on column idempotency_keys.claimed_at is 'When it was begun';
comment on column idempotency_keys.status is 'The HTTP status of its answer; null while it runs, and for good if it ended with its gateway';
comment on column idempotency_keys.answer is 'The body of its answer; never one with a secret in it';

alter table idempotency_keys enable row level security, force row level security;
create policy tenant on idempotency_keys using (org = app_org() and project = app_project());
grant select, insert, delete on idempotency_keys to pml_app;
grant update (request_hash, claimed_at, status, answer) on idempotency_keys to pml_app;

create function app_rate_bucket() returns bytea stable parallel safe language sql
    return decode(nullif(current_setting('app.rate_bucket', true), ''), 'hex');
comment on function app_rate_bucket() is 'The bucket that is being drawn from; buckets belong to no tenant';

-- Unlogged: after a crash of the database every bucket is full, which is what it would soon be anyway.
create unlogged table rate_buckets (
    bucket bytea primary key check (length(bucket) = 32),
    tokens double precision not null,
    filled_at timestamptz not null default clock_timestamp()
);
create index rate_buckets_idle on rate_buckets (filled_at);
comment on table rate_buckets is 'How many requests a key, an organisation or an address may still send';
comment on column rate_buckets.bucket is 'SHA-256 of what is limited';
comment on column rate_buckets.tokens is 'Requests that were left at `filled_at`; more come with time';
comment on column rate_buckets.filled_at is 'When `tokens` was true';

alter table rate_buckets enable row level security, force row level security;
-- Whoever names a bucket may draw from it. One that was left alone for an hour is full, and as good as none.
create policy named on rate_buckets using (bucket = app_rate_bucket());
create policy idle on rate_buckets for select using (filled_at < now() - interval '1 hour');
create policy idle_goes on rate_buckets for delete using (filled_at < now() - interval '1 hour');
grant select, insert, update, delete on rate_buckets to pml_app;

create function rate_take(named bytea, wanted integer, per_second double precision, capacity double precision)
    returns table (granted integer, wait_seconds double precision)
    volatile language plpgsql as $$
declare
    found record;
    present double precision;
begin
    perform set_config('app.rate_bucket', encode(named, 'hex'), true);
    insert into rate_buckets (bucket, tokens) values (named, capacity) on conflict do nothing;
    select b.tokens, b.filled_at into found from rate_buckets b where b.bucket = named for update;
    present := least(capacity, coalesce(found.tokens, capacity)
        + greatest(0, extract(epoch from clock_timestamp() - coalesce(found.filled_at, clock_timestamp()))) * per_second);
    granted := least(wanted, floor(present)::integer);
    wait_seconds := case when granted > 0 then 0 else (1 - present) / per_second end;
    update rate_buckets b set tokens = present - granted, filled_at = clock_timestamp() where b.bucket = named;
    if random() < 0.001 then
        delete from rate_buckets b where b.bucket in (
            select idle.bucket from rate_buckets idle where idle.filled_at < now() - interval '1 hour'
            limit 1000 for update skip locked);
    end if;
    perform set_config('app.rate_bucket', '', true);
    return next;
end
$$;
comment on function rate_take(bytea, integer, double precision, double precision) is
    'Draws up to so many requests from a bucket, or says when there will be one';
