-- The end of an execution finds its row by the whole key, whatever the statistics of the table say.
--
-- Every statement also compares the tenant, because the policy does. In a table without statistics, such as that of a new
-- installation, an index that begins with the tenant looked as good as the key: each end then read all executions of
-- its project.

alter table executions drop constraint executions_pkey, add primary key (org, project, id);

create or replace function finish_executions(of_org text, of_project text, ended jsonb)
    returns table (id uuid, is_first boolean) language plpgsql
    -- The plan is kept, so it must not be that of the first moments, when the table has one page.
    set enable_seqscan = off as $$
declare
    e record;
begin
    perform set_config('app.org', of_org, true), set_config('app.project', of_project, true);
    -- Row by row, since a join may begin with the executions of the project. In one order, so that two gateways do not
    -- wait for each other.
    for e in
        select * from jsonb_to_recordset(ended) as n(
            id uuid, status text, error_code text, result_bytes bigint, calls int, duration_ms bigint)
        order by n.id
    loop
        update executions x
        set status = e.status, error_code = e.error_code, result_bytes = e.result_bytes, calls = e.calls,
            duration_ms = e.duration_ms, finished_at = clock_timestamp()
        where x.org = of_org and x.project = of_project and x.id = e.id and x.finished_at is null;
        is_first := found;
        if is_first or exists (
            select from executions x where x.org = of_org and x.project = of_project and x.id = e.id)
        then
            id := e.id;
            return next;
        end if;
    end loop;
end
$$;

create or replace function expire_records(trace_days int, execution_days int, most int) returns bigint language plpgsql
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
    -- By their place, since the key begins with the tenant.
    delete from public.executions where ctid = any (array(
        select ctid from public.executions
        where started_at < now() - make_interval(days => execution_days) limit most));
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
