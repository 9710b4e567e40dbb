-- Committed offsets are updated in place all the time, never in an indexed column.
ALTER TABLE group_offsets SET (
    fillfactor = 50, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 5000
);
