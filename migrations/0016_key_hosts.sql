-- A stored key may name the hosts that it goes to. Without any it goes to entries of the public catalog alone.

alter table secrets add column hosts text[]
    check (cardinality(hosts) between 1 and 16 and array_position(hosts, null) is null);
comment on column secrets.hosts is
    'The hosts that it may go to, sorted, and part of what it is sealed for; null is none by name: entries of the public catalog alone';
grant update (hosts) on secrets to pml_app;
