"""Tasks for tests of the execution alone: what they hold means something to the test only."""

from typing import Any, cast

from stratalog.pipeline.plan.tasks import MergeTask, Task, Workplace

SECRET = "hush-this-is-a-secret"
WORKPLACE = Workplace(
    objects_url="memory:",
    segments_url="",
    segments_prefix="",
    chunk_bytes=1,
    compress=False,
    encryption_key=None,
    object_options={"secret_access_key": SECRET},
)


def task(*words: object) -> Task:
    """A task that carries these words to the function that runs it."""
    return MergeTask(segments=cast(Any, words))


def words_of(given: Task) -> tuple[Any, ...]:
    assert isinstance(given, MergeTask)
    return cast(Any, given.segments)  # type: ignore[no-any-return]
