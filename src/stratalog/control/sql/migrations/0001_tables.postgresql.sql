-- Heads and producers are updated all the time and never in an indexed column: room on the page
-- keeps those updates inside it, and vacuum comes by count, not by share of the table.
ALTER TABLE heads SET (
    fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000
);
ALTER TABLE producers SET (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.02);
ALTER TABLE batches SET (
    autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_insert_scale_factor = 0.1
);
-- Answers and sequences are packed already.
ALTER TABLE objects ALTER COLUMN answers SET STORAGE EXTERNAL;
ALTER TABLE producers ALTER COLUMN recent SET STORAGE PLAIN;
