"""An allowance: so many times in an hour, regained evenly as the hour passes."""

from stratalog.clock import Clock

_HOUR_S = 3600.0


class HourlyAllowance:
    def __init__(self, per_hour: int, clock: Clock) -> None:
        self._per_hour = per_hour
        self._clock = clock
        self._left = float(per_hour)
        self._counted_s = clock.monotonic()

    def take(self) -> bool:
        """Take one. False if none is left."""
        now_s = self._clock.monotonic()
        regained = (now_s - self._counted_s) * self._per_hour / _HOUR_S
        self._left = min(self._left + regained, float(self._per_hour))
        self._counted_s = now_s
        if self._left < 1:
            return False
        self._left -= 1
        return True
