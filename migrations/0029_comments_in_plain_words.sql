-- Comments that were hard to read, rewritten. Nothing else changes.

comment on function is_visible(text, text, text, text) is
    'Returns whether the tenant of this transaction may see an entry; used by the policies';
comment on function visible_to(text, text, text, text, text, text, text) is
    'Returns whether a tenant may see an entry; the only definition of this rule';
comment on function notify_keys() is 'Notifies every gateway to drop its cached API keys';
comment on function notify_routes() is
    'Notifies every gateway to reload the routes; once per statement, because NOTIFY serializes commits';
comment on function app_principal() is 'The person or service that sent the request; null for anonymous requests';
comment on column orgs.name is 'The name in `org.project`; never reused by another owner';
comment on column orgs.deleted_at is 'When the organisation was deleted; its name is never reused';
comment on column projects.deleted_at is 'When the project was deleted; its name is never reused';
comment on column api_keys.principal is 'The principal that the key acts for; `private` entries belong to a principal';
comment on column api_keys.expires_at is 'When the key expires; null means never';
comment on column api_keys.revoked_at is 'When the key was revoked; null means that it is valid';
comment on column mcp_servers.visibility is 'Who can see it: private (its owner), project, org or public';
comment on column mcp_servers.deprecated is
    'Why the current version of a published server is deprecated; not a part of its content';
comment on column published_servers.visibility is
    'Who can see it: private (its owner), project, org or public; deleted: no one, and the row reserves the name';
comment on column capabilities.visibility is
    'Who can see it: private (its owner), project, org or public; deleted: no one, and the row is kept for its versions';
comment on table tombstones is
    'Deleted entries: callers who could see one get 410, and its name is never reused. For whole projects, see `projects.deleted_at`';
comment on column idempotency_keys.principal is 'The principal that sent it; the answer is repeated to no other one';
comment on column idempotency_keys.request_hash is
    'SHA-256 of that value and of the request; without the value, requests cannot be guessed by their hash';
comment on column idempotency_keys.rights is
    'The rights of its first sender; the answer is not repeated to a caller with fewer rights';
comment on column executions.decision is 'Where the program was to run, or that it was refused';
comment on column data_keys.uses is
    'The number of values that it sealed; nonces are random, so the key is retired at 2^30, long before two nonces are likely to collide';
comment on column secrets.owner is 'The principal that the secret belongs to; empty for a secret of the project';
