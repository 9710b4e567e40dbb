-- Set when the removal of a deleted topic begins, or is ordered. Before, it can be undeleted.
ALTER TABLE topics ADD COLUMN purge_ms bigint;
