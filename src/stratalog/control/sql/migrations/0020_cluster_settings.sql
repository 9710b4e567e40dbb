-- Settings that all brokers of the cluster share, in the units of their names. `earlier` is JSON:
-- [[value, until ms], ...], the values that were in force before.
CREATE TABLE cluster_settings (
    name text PRIMARY KEY,
    value text NOT NULL,
    changed_ms bigint NOT NULL,
    changed_by text NOT NULL,
    earlier text NOT NULL
);

-- JSON: the earlier values of retention configs, by name, as in `cluster_settings`. A null value
-- stands for the cluster's default.
ALTER TABLE topics ADD COLUMN earlier_retention text;
