-- A key is shown to whoever makes it, who then acts as its principal. Both are kept, and both are in the audit log.

alter table api_keys add column made_by text check (made_by ~ '^[A-Za-z0-9._:@+-]{1,128}$');
comment on column api_keys.made_by is 'Who made the key and saw it: a principal, or `operator`; null for keys that are older than this column';

drop function key_by_hash(bytea);
create function key_by_hash(presented bytea)
    returns table (id uuid, org text, project text, principal text, rights text[], expires_at timestamptz, org_role text,
        made_by text)
    volatile language plpgsql as $$
declare
    found_key api_keys;
    its record;
begin
    perform set_config('app.key_hash', encode(presented, 'hex'), true);
    select k.* into found_key from api_keys k
        where k.key_hash = presented
            and k.revoked_at is null
            and (k.expires_at is null or k.expires_at > now());
    perform set_config('app.key_hash', '', true);
    if found_key.id is null then
        return;
    end if;
    perform set_config('app.org', found_key.org, true), set_config('app.project', found_key.project, true);
    select s.* into its from standing(found_key.org, found_key.project, found_key.principal) s;
    perform set_config('app.org', '', true), set_config('app.project', '', true);
    if not its.is_open or (its.is_bound and its.role is null) then
        return;
    end if;
    id := found_key.id;
    org := found_key.org;
    project := found_key.project;
    principal := found_key.principal;
    rights := case when its.is_bound then rights_within(found_key.rights, its.rights) else found_key.rights end;
    expires_at := found_key.expires_at;
    org_role := case when role_rank(its.org_role) <= role_rank(found_key.org_role)
        then its.org_role else found_key.org_role end;
    made_by := found_key.made_by;
    return next;
end
$$;
comment on function key_by_hash(bytea) is 'Finds a valid key by the hash of what was presented, in one round trip, with the caller''s rights';
