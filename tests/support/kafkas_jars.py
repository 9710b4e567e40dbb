"""Tests with Kafka's own programs, whose jars come from Maven Central."""

import shutil

import pytest

needs_kafkas_jars = pytest.mark.skipif(
    shutil.which("mvn") is None or shutil.which("java") is None,
    reason="Kafka's own clients and tools need Java, and Maven to fetch them",
)
"""`make test` needs nothing but Python, so a machine without them skips these tests."""
