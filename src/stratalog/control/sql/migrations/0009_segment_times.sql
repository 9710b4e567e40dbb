-- The least time of a segment's records. Null: nobody knows, because producers set it.
ALTER TABLE segments ADD COLUMN min_timestamp bigint;
