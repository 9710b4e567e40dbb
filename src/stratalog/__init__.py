"""Stratalog: a Kafka-compatible log that lives in object storage."""
