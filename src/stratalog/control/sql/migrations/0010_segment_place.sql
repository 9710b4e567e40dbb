-- Whether the cluster's own segments lie in a store apart from its blocks. Null: nobody has noted it.
ALTER TABLE cluster ADD COLUMN segments_apart boolean;
