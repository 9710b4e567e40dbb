-- How many records the batch `counted_batch_id` had. An older version moves `batch_id` alone: then
-- nobody knows how many the last batch had.
ALTER TABLE sinks ADD COLUMN records bigint;
ALTER TABLE sinks ADD COLUMN counted_batch_id bigint;
