"""Patience with a control plane or a store that is not ready when a broker starts."""

import asyncio

import pytest

from stratalog.errors import CallError, OutcomeUnknownError, RetriableError
from stratalog.node.patience import patiently
from stratalog.testing.clock import ManualClock


class Component:
    """Fails as often as it has failures, then answers."""

    def __init__(self, *failures: Exception) -> None:
        self._failures = list(failures)
        self.calls = 0

    async def open(self) -> str:
        self.calls += 1
        if self._failures:
            raise self._failures.pop(0)
        return "open"


async def test_a_component_that_is_not_ready_is_tried_again_with_growing_pauses(
    caplog: pytest.LogCaptureFixture,
) -> None:
    clock = ManualClock()
    component = Component(RetriableError("slow down"), OutcomeUnknownError("cut off"))
    opening = asyncio.create_task(patiently("The object store", component.open, clock))
    for calls, pause_s in ((1, 0.5), (2, 1.0)):
        await asyncio.sleep(0)
        await clock.advance(pause_s - 0.1)
        assert component.calls == calls
        await clock.advance(0.1)
    assert await opening == "open"
    assert "The object store is not ready, trying again in 0.5 s: slow down" in caplog.text
    assert "The object store is not ready, trying again in 1.0 s: cut off" in caplog.text


async def test_a_component_that_refuses_is_not_tried_again() -> None:
    component = Component(CallError("it belongs to another cluster"))
    with pytest.raises(CallError, match="another cluster"):
        await patiently("The object store", component.open, ManualClock())
    assert component.calls == 1
