"""The history checker: records the operations of Kafka clients, and judges the broker by them."""

from stratalog.testing.checker.check import CHECKS, check
from stratalog.testing.checker.history import History, read_history, write_history
from stratalog.testing.checker.report import Finding, Report

__all__ = ["CHECKS", "Finding", "History", "Report", "check", "read_history", "write_history"]
