"""Apache Kafka's jars, fetched from Maven Central once and kept in the cache of the user."""

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

KAFKA_VERSION = "4.1.1"
FOLDER = Path.home() / ".cache" / "stratalog-bench" / f"kafka-{KAFKA_VERSION}"
ARTIFACTS = (
    ("org.apache.kafka", "kafka_2.13", KAFKA_VERSION),
    ("org.apache.kafka", "kafka-tools", KAFKA_VERSION),
    # Kafka brings an interface for logs only; this one writes warnings to stderr.
    ("org.slf4j", "slf4j-simple", "1.7.36"),
)


def classpath() -> str:
    """The jars of the server, the clients and the tools."""
    for program, package in (("java", "Java 17 or newer"), ("mvn", "Maven")):
        if shutil.which(program) is None:
            raise SystemExit(
                f"There is no `{program}` on the PATH. This bench runs Apache Kafka itself, "
                f"so it needs {package}: install it, and run the bench again."
            )
    if not FOLDER.exists():
        _fetch()
    return f"{FOLDER}/*"


def _fetch() -> None:
    FOLDER.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=FOLDER.parent) as scratch:
        Path(scratch, "pom.xml").write_text(_pom())
        command = ["mvn", "--quiet", "--batch-mode", "dependency:copy-dependencies"]
        command += ["-DincludeScope=runtime", "-DoutputDirectory=jars"]
        done = subprocess.run(
            command, cwd=scratch, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        if done.returncode:
            raise SystemExit(f"Maven could not fetch Kafka {KAFKA_VERSION}:\n{done.stdout}")
        # The name stands for a complete set, so it is given last.
        try:
            os.rename(Path(scratch, "jars"), FOLDER)
        except OSError:
            if not FOLDER.exists():  # Else another bench was faster.
                raise


def _pom() -> str:
    dependencies = "".join(
        f"<dependency><groupId>{group}</groupId><artifactId>{artifact}</artifactId>"
        f"<version>{version}</version></dependency>"
        for group, artifact, version in ARTIFACTS
    )
    return (
        '<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>'
        "<groupId>bench</groupId><artifactId>kafka</artifactId><version>1</version>"
        f"<dependencies>{dependencies}</dependencies></project>"
    )
