-- The order in which live objects are walked through, a chunk at a time, to find those of which
-- little is left.
CREATE INDEX objects_live ON objects (committed_ms, object_id) WHERE state = 'live';
-- Split files are few, and are listed without reading the others.
CREATE INDEX objects_live_splits ON objects (object_id) WHERE state = 'live' AND kind = 'split';
