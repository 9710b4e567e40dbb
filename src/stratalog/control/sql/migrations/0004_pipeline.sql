-- Who works on which range of a partition. A row stays when the claim is given back, for its count
-- of failures; token is null then.
CREATE TABLE claims (
    topic_id uuid NOT NULL,
    partition integer NOT NULL,
    token uuid,
    run_id uuid,
    kind text,
    first_offset bigint,
    end_offset bigint,
    expires_ms bigint,
    attempts integer NOT NULL,
    error text,
    parked_ms bigint,
    PRIMARY KEY (topic_id, partition)
);
CREATE INDEX claims_by_run ON claims (run_id) WHERE token IS NOT NULL;
CREATE UNIQUE INDEX claims_by_token ON claims (token) WHERE token IS NOT NULL;

CREATE TABLE runs (
    run_id uuid PRIMARY KEY,
    holder text NOT NULL,
    started_ms bigint NOT NULL,
    finished_ms bigint,
    report text NOT NULL
);
CREATE INDEX runs_by_time ON runs (started_ms);

-- What people asked of the pipeline, per topic.
CREATE TABLE pipeline_topics (
    topic_id uuid PRIMARY KEY,
    paused_ms bigint,
    triggered_ms bigint
);
