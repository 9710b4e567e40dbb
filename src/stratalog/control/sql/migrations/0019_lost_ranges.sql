-- Offsets whose records are known to be lost. `objects` is JSON: the keys that should have held them.
CREATE TABLE lost_ranges (
    topic_id uuid NOT NULL,
    partition integer NOT NULL,
    first_offset bigint NOT NULL,
    end_offset bigint NOT NULL,
    reason text NOT NULL,
    noted_by text NOT NULL,
    noted_ms bigint NOT NULL,
    objects text NOT NULL,
    PRIMARY KEY (topic_id, partition, first_offset, end_offset)
);

-- The stream that wrote a sink's last batch, so that a stream that starts over is told apart.
ALTER TABLE sinks ADD COLUMN origin text;
