"""Tasks for tests of the execution alone: their contents mean something to the test only."""

from typing import Any, cast

from stratalog.opening.stores import StoreAddresses
from stratalog.opening.workers import WorkerAccess
from stratalog.pipeline.kinds.merge_model import MergeTask
from stratalog.pipeline.plan.tasks import Task
from stratalog.pipeline.workplace import Workplace

SECRET = "hush-this-is-a-secret"
WORKPLACE = Workplace(
    access=WorkerAccess(
        stores=StoreAddresses(objects_url="memory:", object_options={"secret_access_key": SECRET})
    )
)


def task(*words: object) -> Task:
    """A task that carries these words to the function that runs it."""
    return MergeTask(parts=cast(Any, words))


def words_of(given: Task) -> tuple[Any, ...]:
    return cast(tuple[Any, ...], given.parts)
