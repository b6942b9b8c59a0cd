-- What the operator says of a tool's effects: of one content of it, and of no other.

create table tool_classes (
    org text not null,
    project text not null,
    namespace text not null,
    name text not null,
    integrity text not null check (integrity ~ '^sha256-[A-Za-z0-9+/]{43}=$'),
    class text not null check (class in ('read', 'write')),
    eager boolean not null default false check (class = 'read' or not eager),
    set_at timestamptz not null default now(),
    primary key (org, project, namespace, name),
    foreign key (org, project, namespace, name)
        references tools (org, project, namespace, name) on update cascade on delete cascade
);
comment on table tool_classes is 'The operator''s word on what a tool does; it stands above what ships and never comes from the upstream''s hint';
comment on column tool_classes.org is 'The tool''s organisation';
comment on column tool_classes.project is 'The tool''s project';
comment on column tool_classes.namespace is 'The tool''s server';
comment on column tool_classes.name is 'The tool';
comment on column tool_classes.integrity is 'The content that was judged; of a tool with another content it says nothing';
comment on column tool_classes.class is 'read: it changes nothing; write: it may';
comment on column tool_classes.eager is 'Whether a call may be started before the program reaches it';
comment on column tool_classes.set_at is 'When it was said';

alter table tool_classes enable row level security, force row level security;
create policy visible on tool_classes for select
    using (org = 'pml' or (org = app_org() and project = app_project()));
-- The operator acts for the scope whose tools it speaks of; the gateway has no right to write at all.
create policy operator_insert on tool_classes for insert
    with check (org = app_org() and project = app_project());
create policy operator_update on tool_classes for update
    using (org = app_org() and project = app_project());
create policy operator_delete on tool_classes for delete
    using (org = app_org() and project = app_project());
grant select on tool_classes to pml_app;
