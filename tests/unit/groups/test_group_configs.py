from collections.abc import Mapping

from stratalog.control.errors import ControlUnavailableError
from stratalog.groups.consumer.configs import HEARTBEAT, SESSION, GroupConfigs
from stratalog.settings import GroupsSettings
from stratalog.testing.clock import ManualClock


class Reads:
    def __init__(self) -> None:
        self.configs: dict[str, dict[str, str]] = {}
        self.count = 0
        self.is_away = False

    async def __call__(self) -> Mapping[str, Mapping[str, str]]:
        self.count += 1
        if self.is_away:
            raise ControlUnavailableError("away")
        return self.configs


async def test_configs_of_a_group_go_before_settings_and_are_read_again_after_a_while() -> None:
    reads, clock = Reads(), ManualClock()
    settings = GroupsSettings(consumer_session_timeout_ms=40_000)
    configs = GroupConfigs(reads, settings, clock=clock)
    await configs.refresh()
    assert (configs.session_ms("a"), configs.heartbeat_ms("a")) == (40_000, 5_000)
    reads.configs = {"a": {SESSION: "50000"}, "b": {HEARTBEAT: "7000"}}
    await configs.refresh()
    assert (configs.session_ms("a"), reads.count) == (40_000, 1)
    await clock.advance(2)
    await configs.refresh()
    assert (configs.session_ms("a"), configs.heartbeat_ms("a")) == (50_000, 5_000)
    assert (configs.session_ms("b"), configs.heartbeat_ms("b")) == (40_000, 7_000)


async def test_configs_stay_while_the_control_plane_is_away() -> None:
    reads, clock = Reads(), ManualClock()
    reads.configs = {"a": {SESSION: "50000"}}
    configs = GroupConfigs(reads, GroupsSettings(), clock=clock)
    await configs.refresh()
    reads.is_away = True
    await clock.advance(2)
    await configs.refresh()
    assert (configs.session_ms("a"), reads.count) == (50_000, 2)
