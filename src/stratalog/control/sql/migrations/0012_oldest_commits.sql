-- When the oldest of a row's batches was committed. A split joins rows, and committed_ms is the time
-- of the newest batch. Null: at committed_ms, as far as is known. An older version that joins rows
-- leaves it null.
ALTER TABLE batches ADD COLUMN oldest_ms bigint;
