-- Manifests are compressed inside already.
ALTER TABLE segments ALTER COLUMN manifest SET STORAGE EXTERNAL;
