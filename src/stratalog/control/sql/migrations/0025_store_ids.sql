-- The ids of the stores that brokers have claimed, and the newest claims on them, as their markers
-- name them: UUIDs with a space between, newest last. Null until the next claim.
ALTER TABLE cluster ADD COLUMN store_id uuid;
ALTER TABLE cluster ADD COLUMN store_claims text;
ALTER TABLE cluster ADD COLUMN segments_store_id uuid;
ALTER TABLE cluster ADD COLUMN segments_store_claims text;
