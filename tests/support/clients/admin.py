"""The administration of three clients behind one face. kcat can only list."""

from collections.abc import Mapping
from typing import Protocol

ANSWER_SECONDS = 30


class RefusedError(Exception):
    """The broker's error, by Kafka's number."""

    def __init__(self, code: int) -> None:
        super().__init__(f"Kafka error {code}")
        self.code = code


class Admin(Protocol):
    @property
    def name(self) -> str: ...

    def create(
        self, bootstrap: str, topic: str, partitions: int, configs: Mapping[str, str]
    ) -> None: ...

    def delete(self, bootstrap: str, topic: str) -> None: ...

    def grow(self, bootstrap: str, topic: str, partitions: int) -> None: ...

    def partitions(self, bootstrap: str) -> dict[str, int]:
        """How many partitions each topic has."""

    def configs(self, bootstrap: str, topic: str) -> dict[str, str]: ...

    def broker_configs(self, bootstrap: str, broker_id: int) -> dict[str, str]: ...

    def alter(self, bootstrap: str, topic: str, configs: Mapping[str, str]) -> None:
        """Set configs of a topic that has none set."""

    def delete_records(self, bootstrap: str, topic: str, before: int) -> int:
        """Delete from partition 0; return where it starts now."""
