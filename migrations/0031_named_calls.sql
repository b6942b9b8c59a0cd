-- Calls of tools that name their run are made once, too.

comment on table idempotency_keys is
    'For 24 hours: requests with an `Idempotency-Key`, and calls of tools that name their run; each takes effect once';
comment on column idempotency_keys.key_hash is
    'SHA-256 of the value of the header, or of the name of the call';
comment on column idempotency_keys.status is
    'The HTTP status of the answer, 200 for the outcome of a call; null while it is running, and permanently if the outcome is not known';
comment on column idempotency_keys.answer is
    'The body of the answer, never one with a secret in it, or the outcome of the call as JSON';
