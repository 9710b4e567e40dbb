"""`make chaos`: the checker against brokers on a PostgreSQL and an S3 server of its own.

Takes the options of `python -m stratalog.testing.checker`, except where the brokers keep data.
"""

import subprocess
import sys

from tests.support.servers import run_postgres, run_s3_server


def main() -> int:
    with run_postgres() as postgres, run_s3_server() as s3:
        command = [sys.executable, "-m", "stratalog.testing.checker", *sys.argv[1:]]
        command += ["--control", postgres.create_database(), "--objects", s3.fresh_url()]
        for name, value in s3.options.items():
            command += ["--object-option", f"{name}={value}"]
        return subprocess.run(command).returncode


if __name__ == "__main__":
    sys.exit(main())
