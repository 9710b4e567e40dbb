-- Types are PostgreSQL's. SQLite takes any type name: a uuid is text there, a bytea a blob.
-- No foreign keys between the large tables: a commit would pay for each row, and rows, objects
-- and partitions leave in chunks, in transactions of their own.

CREATE TABLE cluster (
    one smallint PRIMARY KEY CHECK (one = 1),
    cluster_id uuid NOT NULL,
    generation bigint NOT NULL,
    next_producer_id bigint NOT NULL
);

CREATE TABLE brokers (
    broker_id integer PRIMARY KEY,
    host text NOT NULL,
    port integer NOT NULL,
    rack text,
    incarnation uuid NOT NULL,
    expires_ms bigint NOT NULL
);

CREATE TABLE topics (
    topic_id uuid PRIMARY KEY,
    name text NOT NULL,
    configs text NOT NULL,
    partition_count integer NOT NULL,
    created_ms bigint NOT NULL,
    deleted_ms bigint
);
CREATE UNIQUE INDEX topics_by_name ON topics (name) WHERE deleted_ms IS NULL;

-- block_end is null while blocks are being written: then it is the high watermark.
-- last_stable is null while no transaction is open: then it is the high watermark, too.
CREATE TABLE partitions (
    topic_id uuid NOT NULL,
    partition integer NOT NULL,
    log_start bigint NOT NULL,
    remote_end bigint NOT NULL,
    block_start bigint NOT NULL,
    block_end bigint,
    last_stable bigint,
    write_tier text NOT NULL,
    PRIMARY KEY (topic_id, partition)
);

CREATE TABLE heads (
    topic_id uuid NOT NULL,
    partition integer NOT NULL,
    high_watermark bigint NOT NULL,
    size_bytes bigint NOT NULL,
    last_commit_ms bigint NOT NULL,
    leader_epoch integer NOT NULL,
    PRIMARY KEY (topic_id, partition)
);

CREATE TABLE epochs (
    topic_id uuid NOT NULL,
    partition integer NOT NULL,
    leader_epoch integer NOT NULL,
    start_offset bigint NOT NULL,
    PRIMARY KEY (topic_id, partition, leader_epoch)
);

-- state: live (rows refer to it), marked (to be deleted from the store), gone (deleted from the
-- store; the answers are still kept), barred (a tombstone: never committed, never will be).
CREATE TABLE objects (
    object_id uuid PRIMARY KEY,
    key text NOT NULL,
    kind text NOT NULL,
    state text NOT NULL,
    size_bytes bigint NOT NULL,
    broker_id integer NOT NULL,
    committed_ms bigint NOT NULL,
    marked_ms bigint,
    answers bytea
);
CREATE INDEX objects_marked ON objects (marked_ms) WHERE state = 'marked';
CREATE INDEX objects_with_answers ON objects (committed_ms) WHERE answers IS NOT NULL;

CREATE TABLE batches (
    topic_id uuid NOT NULL,
    partition integer NOT NULL,
    base_offset bigint NOT NULL,
    last_offset bigint NOT NULL,
    object_id uuid NOT NULL,
    byte_offset bigint NOT NULL,
    byte_size bigint NOT NULL,
    max_timestamp bigint NOT NULL,
    timestamp_type smallint NOT NULL,
    committed_ms bigint NOT NULL,
    leader_epoch integer NOT NULL,
    stamped boolean NOT NULL,
    PRIMARY KEY (topic_id, partition, last_offset)
);
CREATE INDEX batches_by_object ON batches (object_id);

-- One row per producer and partition, with its last batches packed: a commit updates it in place.
CREATE TABLE producers (
    topic_id uuid NOT NULL,
    partition integer NOT NULL,
    producer_id bigint NOT NULL,
    producer_epoch integer NOT NULL,
    recent bytea NOT NULL,
    last_ms bigint NOT NULL,
    PRIMARY KEY (topic_id, partition, producer_id)
);

CREATE TABLE leases (
    lease_id uuid PRIMARY KEY,
    holder text NOT NULL,
    started_ms bigint NOT NULL,
    expires_ms bigint NOT NULL
);
