"""What an executor does with a task. Plain and synchronous, for any Python worker process."""

from dataclasses import replace
from functools import cache

import uvloop

from stratalog.clock import SYSTEM_CLOCK, Clock
from stratalog.errors import RetriableError
from stratalog.ids import Entropy, system_entropy
from stratalog.memory import collect_garbage_rarely, keep_freed_memory
from stratalog.objects.store import StoreAccessError
from stratalog.pipeline.held_claims import tokens_of
from stratalog.pipeline.kinds.merge_task import run_merge
from stratalog.pipeline.kinds.piece_failures import unit_failed
from stratalog.pipeline.kinds.split_task import run_split
from stratalog.pipeline.kinds.task_stores import Wrap, opened, unwrapped
from stratalog.pipeline.own_store import check_own_stores
from stratalog.pipeline.plan.tasks import MergeTask, SplitTask, Task, TaskDone, Workplace


def run_task(task: Task, workplace: Workplace) -> TaskDone:
    """Read, check, sort and write what the task says. It raises only if nothing can be done."""
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
        await check_own_stores(workplace, clock)
    except (RetriableError, StoreAccessError) as error:
        # As an answer: a job that fails is searched for the partition that is to blame.
        return TaskDone(failed=[unit_failed(token, error) for token in tokens_of(task)])
    async with opened(workplace, clock=clock, entropy=entropy, wrap=wrap) as place:
        match task:
            case MergeTask():
                done = await run_merge(task, place)
            case SplitTask():
                done = await run_split(task, place)
    return replace(done, effort=place.effort(clock.monotonic() - started))
