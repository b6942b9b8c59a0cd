-- Each event of a tenant names the one before it by its hash: what is changed, taken out or put in between is found.

alter table audit_log
    add column seq bigint,
    add column hash bytea check (length(hash) = 32);
comment on column audit_log.seq is 'The event''s place in its tenant''s chain, from 1 and without gaps';
comment on column audit_log.hash is 'SHA-256 of the hash before it and of the event; the first has 32 zeroes before it';

create function audit_hash(before bytea, event audit_log) returns bytea immutable parallel safe language sql
    return sha256(before || convert_to(jsonb_build_array(
        event.org, event.project, event.seq, extract(epoch from event.at), event.principal, event.action,
        event.target, event.outcome, event.detail)::text, 'UTF8'));
comment on function audit_hash(bytea, audit_log) is 'What stands in `hash` of an event, after the hash of the event before it';

create function audit_log_is_chained() returns trigger language plpgsql as $$
declare
    last record;
begin
    -- One at a time for each tenant, until the transaction ends: the next event needs this one's hash.
    perform pg_advisory_xact_lock(hashtextextended('pml audit ' || new.org || '.' || new.project, 0));
    select seq, hash into last from audit_log
        where org = new.org and project = new.project order by seq desc limit 1;
    new.seq := coalesce(last.seq, 0) + 1;
    new.at := clock_timestamp();
    new.hash := audit_hash(coalesce(last.hash, decode(repeat('00', 32), 'hex')), new);
    return new;
end
$$;
comment on function audit_log_is_chained() is 'Gives an event its place, time and hash, whatever the writer says they are';

-- What was recorded before there was a chain is chained in the order of its ids.
alter table audit_log disable trigger audit_log_is_append_only;
alter table audit_log no force row level security;
do $$
declare
    event audit_log;
    last record;
begin
    for event in select * from audit_log order by id loop
        select seq, hash into last from audit_log
            where org = event.org and project = event.project and seq is not null
            order by seq desc limit 1;
        event.seq := coalesce(last.seq, 0) + 1;
        update audit_log set seq = event.seq,
            hash = audit_hash(coalesce(last.hash, decode(repeat('00', 32), 'hex')), event)
            where id = event.id;
    end loop;
end
$$;
alter table audit_log force row level security;
alter table audit_log enable trigger audit_log_is_append_only;

alter table audit_log alter column seq set not null, alter column hash set not null;
create unique index audit_log_chain on audit_log (org, project, seq);
drop index audit_log_scope;
create trigger audit_log_is_chained before insert on audit_log
    for each row execute function audit_log_is_chained();

-- The place of the first event that does not follow from those before it; null if all do. With the caller's rights.
create function audit_first_bad() returns bigint stable language sql
    return (
        select min(place) from (
            select row_number() over chain as place,
                event.seq,
                event.hash,
                audit_hash(lag(event.hash, 1, decode(repeat('00', 32), 'hex')) over chain, event) as expected
            from audit_log event
            where event.org = app_org() and event.project = app_project()
            window chain as (order by event.seq)
        ) seen
        where seen.seq <> seen.place or seen.hash <> seen.expected);
comment on function audit_first_bad() is 'Where the chain of whoever asks is broken first; null if it is whole';
