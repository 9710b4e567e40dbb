-- Topics are read with the partitions that do not write to blocks. There are hardly any.
CREATE INDEX partitions_not_in_blocks ON partitions (topic_id) WHERE write_tier <> 'block';
