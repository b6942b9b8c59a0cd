-- The records of the run store, version 2. The tables of runs, calls, results and approvals are views of them.

CREATE TABLE records (
    seq INTEGER PRIMARY KEY,
    -- The record as canonical JSON (RFC 8785).
    body TEXT NOT NULL,
    -- SHA-256 of the hash before it, `seq` as eight bytes, and the body.
    hash BLOB NOT NULL,
    -- Two members of the body, `run` and `type`, to find records by. `pml runs verify` compares them.
    run_id TEXT,
    type TEXT NOT NULL
) STRICT;

CREATE INDEX records_by_run ON records (run_id, seq);
CREATE INDEX runs_by_seq ON records (seq, run_id) WHERE type = 'run_began';

