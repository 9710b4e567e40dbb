import pytest

from stratalog.pipeline.errors import JobCancelledError, JobFailedError
from stratalog.pipeline.hosting.job_errors import explain_failure

RAISED = """
  An exception was thrown from the Python worker. Please see the stack trace below.
Traceback (most recent call last):
  File "/x/worker.py", line 1, in main
    process()
stratalog.errors.DamagedError: block 7 is short

\tat org.apache.spark.api.python.BasePythonRunner.handle(PythonRunner.scala:1)
"""
CHAINED = """Traceback (most recent call last):
  File "/x/a.py", line 1, in f
    g()
    ^^^
KeyError: 'x'

During handling of the above exception, another exception occurred:

Traceback (most recent call last):
  File "/x/a.py", line 2, in f
    h()
Unusual: the second
"""
DIED = """An error occurred while calling o58.collectToPython.
: org.apache.spark.SparkException: Job aborted due to stage failure: Task 0 in stage 3.0 failed 2 times, most recent failure: Lost task 0.1 in stage 3.0 (TID 47) (127.0.0.1 executor driver): org.apache.spark.SparkException: Python worker exited unexpectedly (crashed). Consider setting
\tat org.apache.spark.x(PythonRunner.scala:1136)
"""  # noqa: E501
LOST = "Job aborted: Task 0 in stage 1.0 failed 4 times, ExecutorLostFailure (executor 3 exited unr"
CANCELLED = "[SPARK_JOB_CANCELLED] Job 4 cancelled part of cancelled job group x\n\tat y"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (RAISED, "merge 1: DamagedError: block 7 is short"),
        (CHAINED, "merge 1: Unusual: the second"),
        (LOST, "merge 1 after 4 attempts: executor 3 was lost, killed or out of memory"),
        ("All masters are unresponsive!\n\tat x", "merge 1: All masters are unresponsive!"),
        ("", "merge 1: Spark gave no reason"),
    ],
)
def test_a_failure_is_told_in_one_line(text: str, message: str) -> None:
    error = explain_failure("merge 1", RuntimeError(text))
    assert str(error) == message
    assert type(error) is JobFailedError


def test_a_dead_worker_is_told_from_an_exception() -> None:
    message = str(explain_failure("merge 1", RuntimeError(DIED)))
    assert message.startswith("merge 1 after 2 attempts: the Python worker died")


def test_a_cancelled_job_is_an_error_of_its_own() -> None:
    error = explain_failure("merge 1", RuntimeError(CANCELLED))
    assert isinstance(error, JobCancelledError)
    assert str(error) == "merge 1: cancelled"


@pytest.mark.parametrize(
    ("module", "told"),
    [("stratalog.batch", "have no Stratalog: ship"), ("pyarrow", "Python has no pyarrow, so it")],
)
def test_executors_without_stratalog_are_told_what_to_do(module: str, told: str) -> None:
    text = f"Traceback (most recent call last):\n  x\nImportError: No module named '{module}'"
    said = str(explain_failure("merge 1", RuntimeError(text)))
    assert told in said
    assert "ship an environment" in said


def test_an_endless_line_is_cut() -> None:
    assert len(str(explain_failure("merge 1", RuntimeError("x" * 5000)))) < 400
