-- Topics whose segments Kafka was told of. Rows stay, also when their topics are gone: Kafka may
-- keep segments of its own beside them.
CREATE TABLE exported_topics (
    topic_id uuid PRIMARY KEY,
    exported_ms bigint NOT NULL
);
