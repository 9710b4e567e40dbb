-- Segments of the remote tier. state: the numbers of Kafka's remote log segment states.
-- leader_epochs is JSON: [[epoch, start offset], ...]. Only chained ones belong to a partition.
CREATE TABLE segments (
    segment_id uuid PRIMARY KEY,
    topic_id uuid NOT NULL,
    partition integer NOT NULL,
    base_offset bigint NOT NULL,
    last_offset bigint NOT NULL,
    size_bytes bigint NOT NULL,
    max_timestamp bigint NOT NULL,
    leader_epochs text NOT NULL,
    key_base text NOT NULL,
    store_url text NOT NULL,
    broker_id integer NOT NULL,
    state smallint NOT NULL,
    chained boolean NOT NULL,
    owned boolean NOT NULL,
    added_ms bigint NOT NULL,
    changed_ms bigint NOT NULL,
    manifest text,
    stored_bytes bigint,
    has_aborted boolean,
    custom_metadata bytea
);
CREATE UNIQUE INDEX segments_of_partition ON segments (topic_id, partition, last_offset)
    WHERE chained;
CREATE INDEX segments_unchained ON segments (added_ms) WHERE NOT chained;

-- Set from the start of a switch from local files to blocks until it is done or given up.
ALTER TABLE partitions ADD COLUMN migrating_since_ms bigint;

-- Few partitions ever leave their first leader epoch; Metadata asks which.
CREATE INDEX heads_with_epochs ON heads (topic_id) WHERE leader_epoch > 0;

-- Producers of an adopted topic keep the numbers that Kafka gave them, which begin with 0.
UPDATE cluster SET next_producer_id = 1099511627776 WHERE next_producer_id < 1099511627776;
