import pickle
from collections.abc import Callable

import pyarrow as pa
from pyspark import cloudpickle
from tests.unit.pipeline.spark_tasks import SECRET, WORKPLACE, task, words_of

from stratalog.pipeline.hosting.task_rows import answers, plan_table, row_function
from stratalog.pipeline.plan.tasks import Effort, Task, TaskDone
from stratalog.pipeline.workplace import Workplace


def counting(given: Task, workplace: Workplace) -> TaskDone:
    (number,) = words_of(given)
    return TaskDone(
        effort=Effort(requests=number, bytes_read=len(workplace.access.stores.objects_url))
    )


def test_every_task_is_answered_under_its_own_number() -> None:
    table = plan_table([task(10), task(20), task(30)])
    shuffled = [table.slice(number, 1) for number in (2, 0, 1)]
    run = row_function(counting, WORKPLACE)
    rows = [row for part in shuffled for out in run(part.to_batches()) for row in out.to_pylist()]
    done = answers(rows)
    assert [done[number].effort.requests for number in range(3)] == [10, 20, 30]
    assert done[0].effort.bytes_read == len(WORKPLACE.access.stores.objects_url)


def test_answers_have_the_types_that_spark_was_told() -> None:
    (out,) = row_function(counting, WORKPLACE)(plan_table([task(1)]).to_batches())
    assert out.schema.types == [pa.int32(), pa.binary()]
    assert out.schema.names == ["number", "body"]


def test_credentials_are_in_the_function_and_not_in_the_rows() -> None:
    function = row_function(counting, WORKPLACE)
    dumps: Callable[[object], bytes] = cloudpickle.dumps
    again = pickle.loads(dumps(function))
    assert list(again(plan_table([task(1)]).to_batches()))
    assert SECRET not in repr(function)
    assert SECRET not in repr(WORKPLACE)
