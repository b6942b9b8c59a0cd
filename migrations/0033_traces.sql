-- What the calls of a run were: told by clients after its end, and by the gateway about its own executions.

create table traces (
    id uuid primary key,
    org text not null,
    project text not null,
    principal text not null,
    origin text not null check (origin in ('client', 'gateway')),
    run_id uuid not null,
    execution_id uuid,
    code_hash text not null check (code_hash ~ '^sha256-[A-Za-z0-9+/]{43}=$'),
    status text not null check (status in ('success', 'error', 'denied', 'cancelled', 'indeterminate')),
    error_code text check (error_code ~ '^[A-Z][A-Z0-9_]{0,63}$'),
    started_at timestamptz not null,
    duration_ms bigint not null check (duration_ms >= 0),
    arguments json,
    result json,
    event_count int not null check (event_count >= 0),
    events_dropped int not null default 0 check (events_dropped >= 0),
    received_at timestamptz not null default now(),
    month date not null generated always as (date_trunc('month', received_at at time zone 'UTC')::date) stored,
    -- Not the run alone: whether somebody else has a run of this id must not be noticeable.
    unique (org, project, principal, origin, run_id),
    foreign key (org, project) references projects (org, name)
);
create index traces_execution on traces (org, project, execution_id) where execution_id is not null;
create index traces_run on traces (org, project, run_id);
create index traces_age on traces (month);
comment on table traces is 'Runs that have ended; never code, and values only where the user has chosen `traces: "full"`';
comment on column traces.id is 'Names the trace in `trace_events`; shown to nobody';
comment on column traces.org is 'The organisation that ran it';
comment on column traces.project is 'The project that ran it';
comment on column traces.principal is 'Who ran it';
comment on column traces.origin is 'Who tells it: the client that ran it, or the gateway itself';
comment on column traces.run_id is 'The run: the client''s name for it, or the id of the gateway''s execution';
comment on column traces.execution_id is 'The execution that the client says was delegated to it; null for none';
comment on column traces.code_hash is 'SHA-256 of the program';
comment on column traces.status is 'How it ended';
comment on column traces.error_code is 'The name of the error''s code, if it failed';
comment on column traces.started_at is 'When it began, by the clock of whoever ran it';
comment on column traces.duration_ms is 'How long it ran, with the time in which it waited for a human';
comment on column traces.arguments is 'What is told of its arguments: keyed hash, size, shape. Not jsonb, which cannot hold U+0000';
comment on column traces.result is 'What is told of its result, in the same form';
comment on column traces.event_count is 'How many events it has, of which some may not have arrived';
comment on column traces.events_dropped is 'How many calls have no event, because there were too many';
comment on column traces.received_at is 'When the first part of it arrived';
comment on column traces.month is 'The month of `received_at` in UTC, which decides where all of its events are, and when they are dropped';

-- A later part finds the row in `traces` first and takes its month, so a part that is sent again in another month
-- meets the events that it sent before. Therefore all events of a run are in one partition, and the keys of the
-- partitions are enough. The table itself has none: `pg_restore --clean` fails at keys that partitions inherit.
create table trace_events (
    org text not null,
    project text not null,
    trace uuid not null,
    month date not null,
    seq int not null check (seq >= 1),
    trace_id text not null,
    parent_trace_id text,
    tool text not null,
    kind text not null check (kind in ('tool', 'capability')),
    routing text not null check (routing in ('client', 'server')),
    status text not null check (status in ('success', 'error', 'denied', 'cancelled', 'indeterminate')),
    error_code text check (error_code ~ '^[A-Z][A-Z0-9_]{0,63}$'),
    started_at timestamptz not null,
    duration_ms bigint check (duration_ms >= 0),
    arguments json,
    result json
) partition by range (month);
comment on table trace_events is 'The calls of the runs in `traces`; one partition for each month';
comment on column trace_events.org is 'The organisation that ran it';
comment on column trace_events.project is 'The project that ran it';
comment on column trace_events.trace is 'The run, `traces.id`';
comment on column trace_events.month is 'The month of its run, `traces.month`';
comment on column trace_events.seq is 'Its number in the run, from 1';
comment on column trace_events.trace_id is 'The call within the run, for example 3.1';
comment on column trace_events.parent_trace_id is 'The call of the capability that made it; null for a call of the program itself';
comment on column trace_events.tool is 'The tool or capability';
comment on column trace_events.kind is 'Whether it is a tool or a capability';
comment on column trace_events.routing is 'Where it ran';
comment on column trace_events.status is 'How it ended';
comment on column trace_events.error_code is 'The name of the error''s code, if it failed';
comment on column trace_events.started_at is 'When it began, by the clock of whoever ran it';
comment on column trace_events.duration_ms is 'How long it took; null if its end is not known';
comment on column trace_events.arguments is 'What is told of its arguments: keyed hash, size, shape';
comment on column trace_events.result is 'What is told of its result, in the same form';

alter table traces enable row level security, force row level security;
alter table trace_events enable row level security, force row level security;
create policy tenant on traces using (org = app_org() and project = app_project());
create policy tenant on trace_events using (org = app_org() and project = app_project());
grant select, insert on traces, trace_events to pml_app;
create trigger project_is_open before insert on traces for each row execute function project_is_open();

-- The two functions below have the rights of their owner, because the role that serves owns no table. They take no
-- names, and resolve all others in fixed schemas. `lock_timeout` bounds how long requests can wait behind them.
create function make_trace_partitions() returns void language plpgsql
    security definer set search_path = pg_catalog, pg_temp set lock_timeout = '500ms' as $$
declare
    first date;
    name text;
begin
    -- Gateways that do this at the same time wait for each other, and then find the partitions.
    perform pg_advisory_xact_lock(hashtextextended('pml trace partitions', 0));
    for ahead in 0..2 loop
        first := (date_trunc('month', now() at time zone 'UTC') + make_interval(months => ahead))::date;
        name := 'trace_events_' || to_char(first, 'YYYY_MM');
        continue when to_regclass('public.' || name) is not null;
        -- Attached, and not created as a partition, which would lock out the readers of all others.
        execute format(
            'create table public.%1$I (like public.trace_events including all, primary key (trace, seq));
            alter table public.%1$I enable row level security, force row level security;
            create policy tenant on public.%1$I using (org = public.app_org() and project = public.app_project());
            comment on table public.%1$I is %2$L;
            alter table public.trace_events attach partition public.%1$I for values from (%3$L) to (%4$L)',
            name,
            'The events of the runs that arrived in this month',
            first,
            (first + interval '1 month')::date);
    end loop;
end
$$;
comment on function make_trace_partitions() is
    'Makes the partitions of `trace_events` for this month and the next two, with the rights of the owner';

create policy expiry on traces to current_user using (current_setting('app.expiring', true) = 'on');
create policy expiry on executions to current_user using (current_setting('app.expiring', true) = 'on');

create function expire_records(trace_days int, execution_days int, most int) returns bigint language plpgsql
    security definer set search_path = pg_catalog, pg_temp set lock_timeout = '500ms' as $$
declare
    keep date;
    gone bigint;
    total bigint;
    old text;
begin
    -- Whoever gets hold of the role that serves cannot remove what it has just done.
    if trace_days is null or trace_days < 7 or execution_days is null or execution_days < 7 then
        raise exception 'records are kept for at least 7 days' using errcode = 'check_violation';
    end if;
    if not pg_try_advisory_xact_lock(hashtextextended('pml expire records', 0)) then
        return 0;
    end if;
    keep := date_trunc('month', (now() - make_interval(days => trace_days)) at time zone 'UTC')::date;
    perform set_config('app.expiring', 'on', true);
    delete from public.traces where id in (select id from public.traces where month < keep limit most);
    get diagnostics total = row_count;
    delete from public.executions where id in (
        select id from public.executions
        where started_at < now() - make_interval(days => execution_days) limit most);
    get diagnostics gone = row_count;
    total := total + gone;
    -- Only after all of their runs: a run without its partition could not take a later part.
    if not exists (select from public.traces where month < keep) then
        for old in
            select c.relname from pg_inherits i join pg_class c on c.oid = i.inhrelid
            where i.inhparent = 'public.trace_events'::regclass
                and c.relname < 'trace_events_' || to_char(keep, 'YYYY_MM')
        loop
            execute format('drop table public.%I', old);
            total := total + 1;
        end loop;
    end if;
    perform set_config('app.expiring', '', true);
    return total;
end
$$;
comment on function expire_records(int, int, int) is
    'Removes at most so many traces and executions that are older than these numbers of days, and old partitions, with the rights of the owner; returns how many';
revoke execute on function make_trace_partitions(), expire_records(int, int, int) from public;
grant execute on function make_trace_partitions(), expire_records(int, int, int) to pml_app;
select make_trace_partitions();

-- Lists of executions, the newest first: all of a project, and those of a principal.
create index executions_newest on executions (org, project, started_at, id);
create index executions_own on executions (org, project, principal, started_at, id);
drop index executions_scope;
-- Rows are written in the order of their time, so the smallest kind of index finds the old ones.
create index executions_age on executions using brin (started_at);
