import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = """
import ctypes, os, platform
from pathlib import Path
from stratalog.pipeline.hosting.priority import send_back_session, step_back

os.setsid()
step_back()
send_back_session(os.getpid())
number = {"x86_64": 252, "aarch64": 31}[platform.machine()]
disk_class = ctypes.CDLL(None).syscall(number, 1, 0) >> 13
group = Path("/proc/self/autogroup")
print(os.nice(0), disk_class, group.read_text().split()[-1] if group.exists() else 10)
"""


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="only Linux tells")
def test_a_process_steps_back_behind_all_others() -> None:
    told = subprocess.run(
        [sys.executable, "-c", SCRIPT], check=True, capture_output=True, text=True
    ).stdout
    assert told.split() == ["10", "3", "10"]
