"""The part of a response that the client has not taken yet, and how fast it takes it."""


class Unsent:
    def __init__(self) -> None:
        self.begin(0.0, 0)

    def begin(self, now_s: float, size_bytes: int) -> None:
        """Note that the client lags behind by so many bytes."""
        self._began_s = self._took_s = self._now_s = now_s
        self._began_bytes = self._bytes = size_bytes

    def note(self, now_s: float, size_bytes: int) -> None:
        if size_bytes != self._bytes:
            self._took_s = now_s
        self._bytes, self._now_s = size_bytes, now_s

    def is_late(self, stall_s: float, least_bytes_per_s: float) -> bool:
        """Tell whether the client has taken nothing for `stall_s`, or less than the least rate."""
        lasted_s = self._now_s - self._began_s
        deadline_s = stall_s + self._began_bytes / least_bytes_per_s
        return self._now_s - self._took_s > stall_s or lasted_s > deadline_s
