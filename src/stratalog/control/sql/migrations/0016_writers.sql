-- The processes that upload objects, announced before their first upload. The tag is in the ids of
-- their objects; commits counts the transactions in which they committed blocks.
CREATE TABLE writers (
    tag bigint PRIMARY KEY,
    kind text NOT NULL,
    broker_id integer,
    announced_ms bigint NOT NULL,
    ended_ms bigint,
    commits bigint NOT NULL
);
-- Why and when the cluster was halted: the control plane was found to have gone back. Null: it runs.
ALTER TABLE cluster ADD COLUMN halted_reason text;
ALTER TABLE cluster ADD COLUMN halted_ms bigint;
