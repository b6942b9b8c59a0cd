-- The records of the run store, version 1.

CREATE TABLE records (
    seq INTEGER PRIMARY KEY,
    -- The record as canonical JSON (RFC 8785).
    body TEXT NOT NULL,
    -- SHA-256 of the hash before it, `seq` as eight bytes, and the body.
    hash BLOB NOT NULL,
    run_id TEXT GENERATED ALWAYS AS (body ->> '$.run') VIRTUAL,
    type TEXT GENERATED ALWAYS AS (body ->> '$.type') VIRTUAL
) STRICT;

CREATE INDEX records_by_run ON records (run_id, seq);
CREATE INDEX records_by_type ON records (type, seq);

