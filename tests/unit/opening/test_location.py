"""The command line, `stratalog.read` and Spark name a cluster in one way."""

from collections.abc import Callable, Mapping
from itertools import combinations
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from stratalog.cli.options import Config, Control, Data, Objects, settings_from
from stratalog.control.open import open_control_plane
from stratalog.errors import SettingsError, StratalogError
from stratalog.opening.cluster import Rights, open_cluster
from stratalog.opening.location import LOCATION_NAMES, ClusterLocation
from stratalog.scan import api
from stratalog.settings import Settings
from stratalog.spark.options import batch_options, stream_options
from stratalog.spark.sink_options import batch_sink_options

Face = Callable[[Mapping[str, str]], Settings]


def by_command_line(given: Mapping[str, str]) -> Settings:
    found: list[Settings] = []
    app = typer.Typer()

    @app.command()
    def show(
        data: Data = None, objects: Objects = None, control: Control = None, config: Config = None
    ) -> None:
        found.append(settings_from(config, None, data=data, objects=objects, control=control))

    flags = [word for name, value in given.items() for word in (f"--{name}", value)]
    result = CliRunner().invoke(app, flags)
    if isinstance(result.exception, StratalogError):
        raise result.exception
    assert result.exit_code == 0, result.output
    return found[0]


def by_read(given: Mapping[str, str]) -> Settings:
    return api._settings(ClusterLocation(**given), None)


def by_spark_batch(given: Mapping[str, str]) -> Settings:
    return batch_options({"topic": "t", **given}).location.settings()


def by_spark_stream(given: Mapping[str, str]) -> Settings:
    return stream_options({"topic": "t", **given}).location.settings()


def by_spark_sink(given: Mapping[str, str]) -> Settings:
    return batch_sink_options({"topic": "t", **given}).location.settings()


FACES = [by_command_line, by_read, by_spark_batch, by_spark_stream, by_spark_sink]
COMBINATIONS = [
    names
    for count in range(len(LOCATION_NAMES) + 1)
    for names in combinations(LOCATION_NAMES, count)
]


@pytest.fixture
def values(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "cluster.toml"
    file.write_text('[storage]\nobjects = "s3://of-file"\ncontrol = "postgresql://of-file/db"\n')
    return {
        "data": str(tmp_path / "folder"),
        "objects": "s3://given",
        "control": "postgresql://given/db",
        "config": str(file),
    }


@pytest.mark.parametrize("face", FACES)
@pytest.mark.parametrize("names", COMBINATIONS, ids="+".join)
def test_every_face_finds_the_same_cluster(
    face: Face, names: tuple[str, ...], values: dict[str, str], tmp_path: Path
) -> None:
    storage = face({name: values[name] for name in names}).storage
    objects, control = "file:stratalog-data/objects", "sqlite:stratalog-data/control.db"
    if "config" in names:
        objects, control = "s3://of-file", "postgresql://of-file/db"
    if "data" in names:
        objects = f"file:{tmp_path / 'folder' / 'objects'}"
        control = f"sqlite:{tmp_path / 'folder' / 'control.db'}"
    if "objects" in names:
        objects = "s3://given"
    if "control" in names:
        control = "postgresql://given/db"
    assert (storage.objects, storage.control) == (objects, control)


@pytest.mark.parametrize("face", FACES)
@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"config": "/no/such.toml"}, "/no/such.toml: there is no such settings file"),
        ({"data": " "}, "data is empty"),
        ({"objects": ""}, "objects is empty"),
        ({"control": ""}, "control is empty"),
        ({"config": " "}, "config is empty"),
        ({"data": "s3://bucket"}, "data must be a folder, not an address"),
    ],
)
def test_every_face_refuses_alike(face: Face, given: dict[str, str], message: str) -> None:
    with pytest.raises(SettingsError, match=message):
        face(given)


@pytest.mark.parametrize("face", FACES)
@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"control": "mysql://host/db"}, "control plane 'mysql': use sqlite:"),
        ({"control": "sqlite:/no/such.db"}, "there is no control plane at /no/such.db"),
        ({"objects": "memory:"}, "storage.objects is in the memory of one process"),
        ({"objects": "ftp://host/folder"}, "ftp"),
    ],
)
async def test_a_wrong_address_is_refused_alike_when_the_cluster_is_opened(
    face: Face, given: dict[str, str], message: str, tmp_path: Path
) -> None:
    plane = await open_control_plane(f"sqlite:{tmp_path / 'control.db'}")
    await plane.close()
    settings = face({"data": str(tmp_path)} | given)
    with pytest.raises(StratalogError, match=message):
        await open_cluster(settings, Rights.READ)


@pytest.mark.parametrize("face", FACES)
def test_a_flag_wins_over_the_environment_and_the_environment_over_the_file(
    face: Face, values: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STRATALOG_CONFIG", values["config"])
    monkeypatch.setenv("STRATALOG_STORAGE_OBJECTS", "s3://of-environment")
    found = face({"control": values["control"]}).storage
    assert (found.objects, found.control) == ("s3://of-environment", "postgresql://given/db")


def test_the_repr_of_a_location_shows_no_password() -> None:
    assert "hush" not in repr(ClusterLocation(control="postgresql://user:hush@host/db"))


def test_an_absolute_location_is_right_from_any_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "stratalog.toml").touch()
    location = ClusterLocation(data="d", objects="file:o", control="sqlite:c.db").absolute()
    assert location.given() == {
        "data": str(tmp_path / "d"),
        "objects": f"file:{tmp_path / 'o'}",
        "control": f"sqlite:{tmp_path / 'c.db'}",
        "config": str(tmp_path / "stratalog.toml"),
    }


def test_settings_and_a_location_exclude_each_other() -> None:
    with pytest.raises(StratalogError, match="settings and data exclude each other"):
        api._settings(ClusterLocation(data="d"), Settings())
