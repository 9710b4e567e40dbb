-- Restores of a backup and rebuilds from the store. One without finished_ms has to be run again before
-- the cluster may be used. The report is JSON.
CREATE TABLE recoveries (
    recovery_id uuid PRIMARY KEY,
    ground text NOT NULL,
    begun_ms bigint NOT NULL,
    finished_ms bigint,
    report text
);
