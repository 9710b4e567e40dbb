"""A call that fails some times, and a clock on which its repeats take no time."""

from stratalog.control.errors import ControlUnavailableError
from stratalog.testing import ManualClock


class HastyClock(ManualClock):
    """Ends every sleep at once."""

    async def sleep(self, seconds: float) -> None:
        await self.advance(seconds)


class Failing:
    def __init__(self, times: int, error: Exception | None = None) -> None:
        self.calls = 0
        self._times = times
        self._error = error or ControlUnavailableError("away")

    async def __call__(self) -> int:
        self.calls += 1
        if self.calls <= self._times:
            raise self._error
        return self.calls
