"""The program for `spark-submit`, as far as it comes without Spark."""

import asyncio
from pathlib import Path

import pytest

from stratalog.control.open import open_control_plane
from stratalog.pipeline.hosting.submit import main


def test_a_topic_that_is_not_there_is_an_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    url = f"sqlite:{tmp_path / 'control.db'}"

    async def found() -> None:
        await (await open_control_plane(url)).close()

    asyncio.run(found())
    storage = (f"storage.control={url}", f"storage.objects=file:{tmp_path / 'objects'}")
    flags = [word for setting in storage for word in ("--set", setting)]
    assert main([*flags, "--topic", "nope"]) == 1
    assert 'there is no topic "nope"' in capsys.readouterr().err
