import sys
from pathlib import Path

import pytest

from stratalog.cluster import socket_name as module
from stratalog.cluster.socket_name import socket_name


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells")
def test_a_socket_has_the_same_name_for_each_process_of_a_machine() -> None:
    name = socket_name("127.0.0.1", 9092)
    assert name == socket_name("127.0.0.1", 9092)
    assert name is not None
    assert name.endswith("/127.0.0.1:9092")
    assert name != socket_name("127.0.0.1", 9093)


def test_a_system_that_does_not_tell_gives_no_name(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(module, "_BOOT", tmp_path / "missing")
    assert socket_name("127.0.0.1", 9092) is None
