"""The lines that `stratalog up` prints."""

import pytest

from stratalog.cli.up import _warn_of_strangers

WARNING = "may read, write and delete everything"


@pytest.mark.parametrize("host", ["0.0.0.0", "", "::", "10.0.0.1", "broker.example"])
def test_listening_where_others_reach_it_gives_a_warning(
    host: str, capsys: pytest.CaptureFixture[str]
) -> None:
    _warn_of_strangers(host)
    said = capsys.readouterr()
    assert WARNING in " ".join((said.out + said.err).split())


@pytest.mark.parametrize("host", ["127.0.0.1", "127.1.2.3", "localhost", "::1"])
def test_listening_on_this_machine_alone_gives_none(
    host: str, capsys: pytest.CaptureFixture[str]
) -> None:
    _warn_of_strangers(host)
    said = capsys.readouterr()
    assert said.out + said.err == ""
