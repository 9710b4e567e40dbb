"""A stream from topic to topic is killed at every point of a batch, and each row arrives once."""

from pathlib import Path

import pytest
from tests.faults.stream_kills import PER_BATCH, Copying, copy
from tests.support.spark import activate

from stratalog.pipeline.hosting.session import OpenSpark

pytestmark = pytest.mark.timeout(900)


def test_a_copy_that_is_killed_at_every_point_has_each_row_once(
    tmp_path: Path, local_spark: OpenSpark
) -> None:
    copying = Copying.make(tmp_path)

    copying.run_killed("before the offset log", times=2)
    assert (copying.logged("offsets"), copying.logged("commits")) == ([0], [0])
    assert copying.copied() == PER_BATCH

    for point in ("planned", "reading", "uploaded"):
        copying.run_killed(point)
        assert (copying.logged("offsets"), copying.logged("commits")) == ([0, 1], [0])
        assert copying.copied() == PER_BATCH
    copying.move()
    copying.run_killed("before the commit")
    assert (copying.logged("offsets"), copying.logged("commits")) == ([0, 1], [0])
    assert copying.copied() == PER_BATCH

    copying.run_killed("after the commit")
    assert (copying.logged("offsets"), copying.logged("commits")) == ([0, 1], [0])
    assert copying.copied() == 2 * PER_BATCH

    copying.move()
    activate(local_spark.session)
    copy(local_spark.session, str(copying.lake.config), str(copying.checkpoint))
    copying.check()
