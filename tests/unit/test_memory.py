import subprocess
import sys
from textwrap import dedent

import pytest

FAULTS_PER_TURN = 16 * 1024 * 1024 // 4096
TURNS = 20


def page_faults(*, keeps: str) -> int:
    """Of a process of its own, whose threads take turns to fill and to free 16 MiB in pieces."""
    program = f"""
        from concurrent.futures import ThreadPoolExecutor
        from resource import RUSAGE_SELF, getrusage
        from stratalog.memory import keep_freed_memory
        {keeps}
        def take(_):
            [bytearray(b"x") * (4 * 1024 * 1024) for _ in range(4)]
        with ThreadPoolExecutor(4) as threads:
            list(threads.map(take, range(4)))
            before = getrusage(RUSAGE_SELF).ru_minflt
            for number in range({TURNS}):
                threads.submit(take, number).result()
            print(getrusage(RUSAGE_SELF).ru_minflt - before)
    """
    command = [sys.executable, "-c", dedent(program)]
    return int(subprocess.run(command, check=True, capture_output=True).stdout)


@pytest.mark.skipif(sys.platform != "linux", reason="a knob of glibc")
def test_freed_memory_is_used_again() -> None:
    by_default = page_faults(keeps="")
    if by_default < TURNS * FAULTS_PER_TURN // 2:
        pytest.skip("this C library keeps memory of its own accord, or has large pages")
    # Once per thread at most.
    assert page_faults(keeps="keep_freed_memory()") < 5 * FAULTS_PER_TURN
    assert page_faults(keeps="keep_freed_memory(one_pool=True)") < 2 * FAULTS_PER_TURN
