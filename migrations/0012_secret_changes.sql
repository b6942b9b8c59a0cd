-- Gateways hold connections that carry a stored key. They let go of them as soon as keys change.

create function notify_secrets() returns trigger language plpgsql as $$
begin
    perform pg_notify('pml_secrets', '');
    return null;
end
$$;
comment on function notify_secrets() is 'Tells every gateway that stored keys changed; once per statement, and without saying whose';
create trigger notify_secrets after insert or update or delete or truncate on secrets
    for each statement execute function notify_secrets();
