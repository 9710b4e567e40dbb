"""A clock that stands still, except for those who sleep."""


class FakeClock:
    def __init__(self, now_ms: int = 1_700_000_000_000) -> None:
        self._start_ms = now_ms
        self.slept: list[float] = []

    def now_ms(self) -> int:
        return self._start_ms + round(sum(self.slept) * 1000)

    def monotonic(self) -> float:
        return sum(self.slept)

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
