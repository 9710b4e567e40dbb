"""The remote tier: per-partition segments in the layout of Kafka's tiered storage."""
