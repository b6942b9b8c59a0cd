-- The triggers and views of the run store, the same in each version.

CREATE TRIGGER records_are_not_changed BEFORE UPDATE ON records
BEGIN SELECT RAISE(ABORT, 'records are never changed'); END;

CREATE TRIGGER records_are_not_deleted BEFORE DELETE ON records
BEGIN SELECT RAISE(ABORT, 'records are never deleted'); END;

CREATE VIEW runs AS
SELECT
    began.run_id,
    began.body ->> '$.at' AS created_at,
    ended.body ->> '$.at' AS completed_at,
    began.body ->> '$.plan.hash' AS plan_hash,
    began.body ->> '$.policy.hash' AS policy_hash,
    began.body ->> '$.plan.json' AS plan_json,
    began.body ->> '$.policy.json' AS policy_json,
    began.body ->> '$.mode' AS mode,
    CASE ended.body ->> '$.status'
        WHEN 'success' THEN 'completed' WHEN 'error' THEN 'failed' ELSE 'running'
    END AS status,
    (SELECT count(*) FROM records AS call
        WHERE call.run_id = began.run_id AND call.type IN ('call_began', 'call_refused')) AS total_steps,
    (SELECT count(*) FROM records AS call
        WHERE call.run_id = began.run_id AND call.type = 'call_ended'
            AND call.body ->> '$.status' = 'success') AS completed_steps,
    (SELECT count(*) FROM records AS call
        WHERE call.run_id = began.run_id AND call.type = 'call_refused') AS denied_steps,
    (SELECT count(*) FROM records AS call
        WHERE call.run_id = began.run_id AND call.type = 'call_ended'
            AND call.body ->> '$.status' = 'error') AS failed_steps
FROM records AS began
LEFT JOIN records AS ended ON ended.run_id = began.run_id AND ended.type = 'run_ended'
WHERE began.type = 'run_began';

CREATE VIEW tool_calls AS
SELECT
    run_id || '/' || (body ->> '$.call') AS call_id,
    run_id,
    body ->> '$.call' AS step_index,
    body ->> '$.tool' AS tool_name,
    body ->> '$.args.json' AS args_json,
    body ->> '$.at' AS created_at
FROM records
WHERE type IN ('call_began', 'call_refused');

CREATE VIEW tool_results AS
SELECT
    began.run_id || '/' || (began.body ->> '$.call') AS call_id,
    CASE
        WHEN began.type = 'call_refused' THEN 'denied'
        ELSE coalesce(ended.body ->> '$.status', 'indeterminate')
    END AS status,
    ended.body ->> '$.output.json' AS output_json,
    coalesce(ended.body ->> '$.error.message', began.body ->> '$.error.message') AS error,
    coalesce(began.body ->> '$.decision', began.body ->> '$.error.message') AS policy_decision,
    began.body ->> '$.at' AS started_at,
    ended.body ->> '$.at' AS ended_at,
    began.body ->> '$.args.hash' AS input_hash,
    ended.body ->> '$.output.hash' AS output_hash
FROM records AS began
LEFT JOIN records AS ended
    ON ended.run_id = began.run_id AND ended.type = 'call_ended'
        AND ended.body ->> '$.call' = began.body ->> '$.call'
WHERE began.type IN ('call_began', 'call_refused');

CREATE VIEW approvals AS
SELECT
    run_id,
    body ->> '$.tool' AS tool_name,
    body ->> '$.args.json' AS args_json,
    body ->> '$.count' AS count,
    body ->> '$.reason' AS reason,
    body ->> '$.answer' AS answer,
    body ->> '$.by' AS answered_by,
    body ->> '$.asked_at' AS asked_at,
    body ->> '$.at' AS answered_at
FROM records
WHERE type = 'approval';
