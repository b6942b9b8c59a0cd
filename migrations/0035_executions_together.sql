-- The records of programs that run at the same time are written together.

-- The settings of the tenant and the rows in one statement, so one round trip and one commit. Row-level security holds
-- as always: the functions have the rights of their caller, and the policies see the settings.
create function begin_executions(of_org text, of_project text, begun jsonb) returns void language plpgsql as $$
begin
    perform set_config('app.org', of_org, true), set_config('app.project', of_project, true);
    -- The clock of the database sets the deadline and also judges it, so that the clocks of the gateways do not matter.
    insert into executions
        (id, org, project, principal, decision, status, code_hash, code_bytes, args_bytes, dynamic, tools, error_code,
        deadline_at, finished_at)
    select n.id, of_org, of_project, n.principal, n.decision, n.status, n.code_hash, n.code_bytes, n.args_bytes,
        n.dynamic, n.tools, n.error_code, clock_timestamp() + make_interval(secs => n.limit_s),
        case when n.status = 'refused' then clock_timestamp() end
    from jsonb_to_recordset(begun) as n(
        id uuid, principal text, decision text, status text, code_hash text, code_bytes bigint, args_bytes bigint,
        dynamic boolean, tools text[], error_code text, limit_s double precision);
end
$$;
comment on function begin_executions(text, text, jsonb) is
    'Records decisions about programs of one project, all or none, before their effect';

create function finish_executions(of_org text, of_project text, ended jsonb)
    returns table (id uuid, is_first boolean) language plpgsql as $$
begin
    perform set_config('app.org', of_org, true), set_config('app.project', of_project, true);
    return query
        with new_end as (
            select e.* from jsonb_to_recordset(ended) as e(
                id uuid, status text, error_code text, result_bytes bigint, calls int, duration_ms bigint)
        ),
        done as (
            update executions x
            set status = e.status, error_code = e.error_code, result_bytes = e.result_bytes, calls = e.calls,
                duration_ms = e.duration_ms, finished_at = clock_timestamp()
            from new_end e
            where x.org = of_org and x.project = of_project and x.id = e.id and x.finished_at is null
            returning x.id
        )
        select x.id, exists (select from done d where d.id = x.id)
        from executions x
        where x.org = of_org and x.project = of_project and x.id in (select e.id from new_end e);
end
$$;
comment on function finish_executions(text, text, jsonb) is
    'Records the ends of executions of one project; returns those that exist, and whether this was their first end';

-- A row is written twice within moments. With room on its page, the second time changes no index.
alter table executions set (fillfactor = 60);
