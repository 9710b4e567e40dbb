"""Running a task on an executor. Plain and synchronous, for any Python worker process."""

from dataclasses import replace
from functools import cache

import uvloop

from stratalog.clock import SYSTEM_CLOCK, Clock
from stratalog.errors import RetriableError
from stratalog.ids import Entropy, system_entropy
from stratalog.memory import collect_garbage_rarely, keep_freed_memory
from stratalog.objects.errors import StoreAccessError
from stratalog.opening.stores import Wrap, unwrapped
from stratalog.pipeline.kinds.registry import run_by_kind
from stratalog.pipeline.kinds.unit_failures import unit_failed
from stratalog.pipeline.plan.tasks import Task, TaskDone
from stratalog.pipeline.workplace import Workplace, opened


def run_task(task: Task, workplace: Workplace) -> TaskDone:
    """Run a task in an event loop of its own. It raises only if nothing can be done."""
    _settle_process()
    return uvloop.run(run_in_loop(task, workplace))


@cache
def _settle_process() -> None:
    keep_freed_memory(one_pool=True)
    collect_garbage_rarely()


async def run_in_loop(
    task: Task,
    workplace: Workplace,
    *,
    clock: Clock | None = None,
    entropy: Entropy = system_entropy,
    wrap: Wrap = unwrapped,
) -> TaskDone:
    clock = clock or SYSTEM_CLOCK
    started = clock.monotonic()
    try:
        await workplace.access.check_stores(clock)
    except (RetriableError, StoreAccessError) as error:
        # As an answer, because a job that fails is searched for the partition that broke it.
        return TaskDone(failed=[unit_failed(token, error) for token in task.tokens])
    async with opened(workplace, clock=clock, entropy=entropy, wrap=wrap) as place:
        done = await run_by_kind(task, place)
    return replace(done, effort=place.effort(clock.monotonic() - started))
