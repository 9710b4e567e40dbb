"""The habits of the tree, as tests: `python -m tests.tidy` prints the counts behind them."""

import json
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from tests.tidy import code, fences, mentions
from tests.tidy.prose import Paragraph, paragraphs
from tests.tidy.ratchet import Limit, Ratchet, load, lowered, measure
from tests.tidy.rooms import ROOT, python_files
from tests.tidy.words import Counted, count_paragraphs


@pytest.fixture(scope="module")
def recorded() -> Ratchet:
    return load()


@pytest.fixture(scope="module")
def found() -> Ratchet:
    return measure()


def test_prose_keeps_within_the_recorded_counts_of_its_room(
    recorded: Ratchet, found: Ratchet
) -> None:
    none = Limit(0, 0, 0)
    worse = {
        room: (limit, recorded.rooms.get(room))
        for room, limit in found.rooms.items()
        if recorded.rooms.get(room, none).exceeded_by(limit)
    }
    assert not worse, "rewrite these sentences: python -m tests.tidy lines <room>"


def test_no_file_is_too_long(recorded: Ratchet, found: Ratchet) -> None:
    assert {p: n for p, n in found.files.items() if n > recorded.files.get(p, 0)} == {}


def test_no_function_is_too_long(recorded: Ratchet, found: Ratchet) -> None:
    longer = {f: n for f, n in found.functions.items() if n > recorded.functions.get(f, 0)}
    assert longer == {}


def test_no_class_has_too_many_public_methods() -> None:
    sizes = code.public_methods()
    assert {name: n for name, n in sizes.items() if n > code.MAX_PUBLIC_METHODS} == {}


def test_error_classes_stand_in_errors_py(recorded: Ratchet, found: Ratchet) -> None:
    assert found.errors - recorded.errors == set()


def test_nothing_is_imported_from_a_test_module(recorded: Ratchet, found: Ratchet) -> None:
    assert found.test_imports - recorded.test_imports == set()


def test_unit_tests_need_no_servers() -> None:
    assert code.users_of_servers() == []


def test_docstrings_and_adjoining_comments_are_the_prose_of_a_file(tmp_path: Path) -> None:
    source = tmp_path / "sample.py"
    source.write_text(
        '"""Holds what is left.\n\nWhoever asks is told `what`."""\n'
        "# Nobody\n# knows.\n"
        'x = "what"  # noqa: what\n'
    )
    assert [paragraph.text for paragraph in paragraphs(source)] == [
        "Nobody knows.",
        "Holds what is left.",
        "Whoever asks is told `.",
    ]


def test_code_blocks_of_a_page_are_no_prose_and_cells_are_paragraphs(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("| a | What |\n\n```sh\nwhat\n```\n\n- one\n  two\n- three\n")
    assert [paragraph.text for paragraph in paragraphs(page)] == ["a", "What", "one two", "three"]


def test_each_word_rule_counts_what_it_names() -> None:
    text = "Whether it is. What is told anew, those that nobody reads. It knows what."
    assert count_paragraphs([Paragraph(1, text)]) == Counted(words=14, whats=2, starts=2, avoided=4)
    assert Counted(words=1000, whats=1).what_rate == 1.0


def test_recorded_counts_only_fall() -> None:
    old = Ratchet(
        rooms={"a": Limit(2.0, 5, 5), "b": Limit(1.0, 1, 1), "gone": Limit(1.0, 1, 1)},
        files={"x": 600, "y": 700},
        errors=frozenset({"OldError"}),
    )
    new = Ratchet(
        rooms={"a": Limit(3.0, 4, 5), "b": Limit(0.0, 0, 0), "new": Limit(1.0, 0, 0)},
        files={"x": 650, "z": 800},
        errors=frozenset({"NewError"}),
    )
    kept = lowered(old, new, only="a")
    assert kept.rooms == {"a": Limit(2.0, 4, 5), "b": Limit(1.0, 1, 1), "new": Limit(1.0, 0, 0)}
    assert lowered(old, new).rooms["b"] == Limit(0.0, 0, 0)
    assert kept.files == {"x": 600}
    assert kept.errors == set()


def test_the_recorded_counts_survive_being_written(tmp_path: Path, recorded: Ratchet) -> None:
    recorded.write(tmp_path / "ratchet.toml")
    assert load(tmp_path / "ratchet.toml") == recorded


def test_a_function_is_as_long_as_from_its_def_to_its_last_line(tmp_path: Path) -> None:
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "x.py").write_text("class A:\n    def b(self):\n        return 1\n")
    assert [(f.name, f.lines) for f in code.functions(tmp_path, ("src",))] == [("A.b", 2)]


def test_every_code_block_of_a_page_says_if_a_test_runs_it() -> None:
    assert fences.unmarked() == []


def test_metrics_are_declared_in_the_catalogue_alone() -> None:
    assert [str(path) for path in code.importers_of("prometheus_client")] == [
        "src/stratalog/metrics.py"
    ]


def test_only_the_opening_of_a_cluster_opens_stores_and_control_planes() -> None:
    importers = {
        name: {str(path.relative_to("src/stratalog")) for path in code.importers_of(name)}
        for name in (
            "stratalog.control.open",
            "stratalog.objects.open.open_store",
            "stratalog.objects.open_store",
        )
    }
    assert importers == {
        "stratalog.control.open": {"opening/cluster.py"},
        "stratalog.objects.open.open_store": {
            "objects/__init__.py",  # for tests and tools, which import it from there
            "opening/stores.py",
            "cli/inspect.py",  # reads any object by its address, also without a cluster
        },
        "stratalog.objects.open_store": set(),
    }


def test_only_the_opening_of_a_cluster_reads_files_of_keys() -> None:
    readers = {
        str(path)
        for path in python_files("src")
        if "KeyRing.load(" in (ROOT / path).read_text(encoding="utf-8")
    }
    assert readers == {"src/stratalog/opening/keys.py"}


def test_files_folders_and_tests_that_pages_mention_exist() -> None:
    assert mentions.missing_paths() == []
    assert mentions.missing_tests() == []


def test_a_page_that_mentions_a_lost_file_or_test_is_found(tmp_path: Path) -> None:
    for folder in ("docs", "src/stratalog/block", "tests"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "tests" / "test_it.py").write_text("def test_one() -> None: ...\n")
    page = "`block/` `block/gone.py` `tests/gone/` `test_it.py` `test_one` `test_o…` `test_two`"
    (tmp_path / "docs" / "page.md").write_text(f"{page}\n")
    missing = [*mentions.missing_paths(tmp_path), *mentions.missing_tests(tmp_path)]
    assert [mention.name for mention in missing] == ["block/gone.py", "tests/gone/", "test_two"]


def test_the_linter_refuses_every_way_around_a_door() -> None:
    config = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    banned = config["tool"]["ruff"]["lint"]["flake8-tidy-imports"]["banned-api"]
    modules = {name.split(".")[0] for name in banned}
    source = "".join(f"import {module}\n" for module in modules | {"stratalog.clock"})
    source += "".join(f"print({name})\n" for name in banned)
    command = [sys.executable, "-m", "ruff", "check", "--select=TID251", "--output-format=json"]
    result = subprocess.run(
        [*command, "--stdin-filename", "src/stratalog/topic/sample.py", "-"],
        input=source,
        capture_output=True,
        text=True,
        cwd=ROOT,
    )
    found = [finding["message"] for finding in json.loads(result.stdout)]
    assert [name for name in banned if not any(f"`{name}`" in text for text in found)] == []


def test_only_seeded_randomness_goes_around_a_door() -> None:
    lines = [
        line
        for path in python_files("src")
        for line in (ROOT / path).read_text(encoding="utf-8").splitlines()
        if "noqa: TID251" in line
    ]
    assert [line for line in lines if "seeded" not in line] == []
