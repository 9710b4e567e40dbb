-- kind: classic, consumer. state: the coordinator's own encoding, empty until it is first saved.
-- term: grows with every change of coordinator, also over the deletion of the row (it starts with
-- the time), so that a write of an earlier coordinator never fits.
CREATE TABLE groups (
    group_id text PRIMARY KEY,
    kind text NOT NULL,
    state_name text NOT NULL,
    protocol_type text NOT NULL,
    state bytea NOT NULL,
    term bigint NOT NULL,
    coordinator_id integer NOT NULL,
    coordinator_incarnation uuid NOT NULL,
    empty_since_ms bigint,
    changed_ms bigint NOT NULL
);

-- metadata is text of the client's, kept as bytes: a client may put any character into it.
CREATE TABLE group_offsets (
    group_id text NOT NULL,
    topic_id uuid NOT NULL,
    partition integer NOT NULL,
    committed_offset bigint NOT NULL,
    leader_epoch integer NOT NULL,
    metadata bytea NOT NULL,
    committed_ms bigint NOT NULL,
    PRIMARY KEY (group_id, topic_id, partition)
);
CREATE INDEX group_offsets_by_topic ON group_offsets (topic_id);
