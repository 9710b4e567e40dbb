"""The failure of a Spark job in one sentence. Spark says it in a hundred lines of Java."""

import re

from stratalog.pipeline.errors import JobCancelledError, JobFailedError

_LONGEST = 300
_TRACEBACK = re.compile(r"Traceback \(most recent call last\):\n(?:[ \t].*\n|\n)*(?:\w+\.)*(\S.*)")
_DEAD_WORKER = re.compile(r"Python worker (?:exited unexpectedly|failed to connect back)")
_LOST_EXECUTOR = re.compile(r"ExecutorLostFailure \(executor (\S+) exited")
_CANCELLED = re.compile(r"cancelled|canceled|OPERATION_CANCELED", re.I)
_MISSING = re.compile(r"No module named '(\w+)")
_REMEDY = "ship an environment to them, install it there, or say which Python has it"
_ATTEMPTS = re.compile(r"failed (\d+) times?")


def explain_failure(name: str, error: BaseException) -> JobFailedError:
    """Return a short error for a job called `name`."""
    text = str(error)
    reason, cancelled = _reason(text)
    attempts = _ATTEMPTS.search(text)
    tried = f" after {attempts[1]} attempts" if attempts and not cancelled else ""
    kind = JobCancelledError if cancelled else JobFailedError
    return kind(f"{name}{tried}: {reason}")


def _reason(text: str) -> tuple[str, bool]:
    raised = _raised_in_python(text)
    if raised is not None:
        return raised, False
    if _DEAD_WORKER.search(text):
        return "the Python worker died, killed or out of memory; try fewer tasks at once", False
    lost = _LOST_EXECUTOR.search(text)
    if lost:
        return f"executor {lost[1]} was lost, killed or out of memory", False
    if _CANCELLED.search(text):
        return "cancelled", True
    return _shortened(text.strip().partition("\n")[0] or "Spark gave no reason"), False


def _raised_in_python(text: str) -> str | None:
    """Return the last line of the worker's traceback: the exception that a task raised."""
    raised = _TRACEBACK.findall(text)
    if not raised:
        return None
    missing = _MISSING.search(raised[-1])
    if missing and missing[1] == "stratalog":
        return f"the executors have no Stratalog: {_REMEDY}"
    if missing:
        return f"the executors' Python has no {missing[1]}, so it has no Stratalog: {_REMEDY}"
    return _shortened(raised[-1])


def _shortened(line: str) -> str:
    return line if len(line) <= _LONGEST else line[:_LONGEST] + "…"
