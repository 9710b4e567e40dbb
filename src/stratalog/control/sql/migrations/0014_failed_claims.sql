-- When the work on the partition failed last, whether that was counted or not; null after a success.
-- A driver that knows nothing of it leaves it as it is: rows that are younger than it say that the
-- work has succeeded since.
ALTER TABLE claims ADD COLUMN failed_ms bigint;
-- When it succeeded last: since then the partition waits for its next turn.
ALTER TABLE claims ADD COLUMN done_ms bigint;
