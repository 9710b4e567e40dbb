-- When it was last found that what is alive in an object cannot be moved out of it.
ALTER TABLE objects ADD COLUMN stuck_ms bigint;
