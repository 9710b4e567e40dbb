-- The last batch that each sink has committed. Rows stay: a repeat may come at any time.
CREATE TABLE sinks (
    sink_id text PRIMARY KEY,
    batch_id bigint NOT NULL,
    committed_ms bigint NOT NULL
);
