-- When an operator or a recovery accepted this control plane after it went back. Blocks from before
-- do not count as evidence that it did. Null: never.
ALTER TABLE cluster ADD COLUMN accepted_ms bigint;
