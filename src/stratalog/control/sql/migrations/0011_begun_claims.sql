-- The token of the claim under which work has begun: what its holder's silence is told by. A driver
-- that knows nothing of it never sets it, and its tokens are others than the one that is here.
ALTER TABLE claims ADD COLUMN begun_token uuid;
