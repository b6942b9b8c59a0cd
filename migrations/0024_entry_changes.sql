-- A number that tells whether anything was changed, for what gateways keep in memory to search in.

-- A notification arrives some time after the commit. Whoever publishes and then searches must find it at once, so a
-- search compares this number first. A sequence takes no lock that writers would wait for; it may rise for what is
-- rolled back, and it rises before the commit, so the notification is needed besides.
create sequence entry_changes;
-- Its first value does not show that it was taken.
select nextval('entry_changes');
comment on sequence entry_changes is 'Rises with each statement that changes entries';
grant usage, select on entry_changes to pml_app;

create or replace function notify_entries() returns trigger language plpgsql as $$
begin
    perform nextval('entry_changes');
    perform pg_notify('pml_entries', '');
    return null;
end
$$;
