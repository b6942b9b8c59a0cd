-- Which programs were decided on, and how that ended.

create table executions (
    id uuid primary key,
    org text not null,
    project text not null,
    principal text not null,
    decision text not null check (decision in ('server', 'client', 'refused')),
    status text not null check (status in ('running', 'delegated', 'success', 'error', 'cancelled', 'refused')),
    code_hash text not null check (code_hash ~ '^sha256-[A-Za-z0-9+/]{43}=$'),
    code_bytes bigint not null check (code_bytes >= 0),
    args_bytes bigint not null check (args_bytes >= 0),
    dynamic boolean not null,
    tools text[] not null,
    started_at timestamptz not null default clock_timestamp(),
    deadline_at timestamptz not null,
    finished_at timestamptz,
    error_code text,
    result_bytes bigint check (result_bytes >= 0),
    calls int check (calls >= 0),
    duration_ms bigint check (duration_ms >= 0),
    check ((status in ('running', 'delegated')) = (finished_at is null)),
    foreign key (org, project) references projects (org, name)
);
create index executions_scope on executions (org, project, started_at desc, id);
comment on table executions is 'Decisions about programs, recorded before their effect; never code, arguments or results';
comment on column executions.id is 'The execution id that both programs log';
comment on column executions.org is 'The organisation that asked';
comment on column executions.project is 'The project that asked';
comment on column executions.principal is 'Who asked';
comment on column executions.decision is 'Where it was decided to run, or that it was refused';
comment on column executions.status is 'running and delegated are open; one of the others ends it, once';
comment on column executions.code_hash is 'SHA-256 of the program';
comment on column executions.code_bytes is 'The program''s size';
comment on column executions.args_bytes is 'The size of its arguments as JSON';
comment on column executions.dynamic is 'The analysis could not list every tool';
comment on column executions.tools is 'The declared tools';
comment on column executions.started_at is 'When it was decided';
comment on column executions.deadline_at is 'After this a run that is still open was cut off: its outcome is indeterminate';
comment on column executions.finished_at is 'When its end was recorded';
comment on column executions.error_code is 'The code of the error that ended it';
comment on column executions.result_bytes is 'The size of its result as JSON';
comment on column executions.calls is 'How many tool calls it made';
comment on column executions.duration_ms is 'How long it ran';

alter table executions enable row level security, force row level security;
create policy tenant on executions using (org = app_org() and project = app_project());

grant select, insert,
    update (status, finished_at, error_code, result_bytes, calls, duration_ms)
    on executions to pml_app;
