"""The clock of a simulated machine: it may run fast or slow, and its wall clock may jump."""

import asyncio


class NodeClock:
    """A `Clock` on virtual time. Rates change how durations are measured, jumps the wall clock."""

    def __init__(self, *, start_ms: int = 1_700_000_000_000, rate: float = 1.0) -> None:
        self._start_ms = float(start_ms)
        self._rate = rate
        # Kept, because a thread that asks for the time has no running loop.
        self._loop = asyncio.get_running_loop()
        self._since_s = self._loop.time()
        self._elapsed_s = 0.0

    def now_ms(self) -> int:
        return int(self._start_ms + self.monotonic() * 1000)

    def monotonic(self) -> float:
        passed_s = self._loop.time() - self._since_s
        return self._elapsed_s + passed_s * self._rate

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds / self._rate)

    def set_rate(self, rate: float) -> None:
        """Let this clock run so many times as fast from now on."""
        self._elapsed_s = self.monotonic()
        self._since_s = self._loop.time()
        self._rate = rate

    def jump(self, milliseconds: float) -> None:
        """Set the wall clock forward, or back."""
        self._start_ms += milliseconds
