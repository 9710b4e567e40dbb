"""A cluster opens with declared rights, and gives workers one value without printed secrets."""

import asyncio
import pickle
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from stratalog.cli.main import app
from stratalog.clock import SYSTEM_CLOCK
from stratalog.control.errors import NoControlPlaneError
from stratalog.opening.cluster import Rights, open_cluster, opened_cluster
from stratalog.opening.errors import (
    MarkerMissingError,
    PrivateStoreError,
    WorkerStoreError,
    WrongSegmentStoreError,
)
from stratalog.opening.marker import MARKER_KEY, read_marker
from stratalog.opening.workers import WorkerAccess, WorkerKeys, worker_access
from stratalog.settings import RemoteSettings, Settings, StorageSettings

GOLDEN = Path(__file__).parents[2] / "golden"
OTHERS = [Rights.CHANGE, Rights.APPEND, Rights.READ]


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(
        storage=StorageSettings(
            objects=f"file:{tmp_path / 'objects'}", control=f"sqlite:{tmp_path / 'control.db'}"
        )
    )


async def make(settings: Settings) -> None:
    await (await open_cluster(settings, Rights.MAKE)).close()


async def test_a_broker_makes_the_cluster_and_claims_its_stores(
    settings: Settings, tmp_path: Path
) -> None:
    apart = replace(settings, remote=RemoteSettings(objects=f"file:{tmp_path / 'cold'}"))
    async with opened_cluster(apart, Rights.MAKE) as cluster:
        cluster_id = (await cluster.control.identity.cluster()).cluster_id
        for store in (cluster.objects, cluster.segments.own):
            found = await read_marker(store)
            assert found is not None
            assert found[0].cluster_id == cluster_id


@pytest.mark.parametrize("rights", OTHERS)
async def test_no_other_program_makes_a_cluster(
    settings: Settings, rights: Rights, tmp_path: Path
) -> None:
    with pytest.raises(NoControlPlaneError):
        await open_cluster(settings, rights)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("rights", OTHERS)
async def test_every_program_opens_a_cluster_that_a_broker_made(
    settings: Settings, rights: Rights
) -> None:
    await make(settings)
    async with opened_cluster(settings, rights) as cluster:
        assert cluster.rights is rights


@pytest.mark.parametrize("rights", [Rights.CHANGE, Rights.APPEND])
async def test_a_store_that_lost_its_marker_is_not_written_to(
    settings: Settings, rights: Rights, tmp_path: Path
) -> None:
    await make(settings)
    (tmp_path / "objects" / MARKER_KEY).unlink()
    with pytest.raises(MarkerMissingError):
        await open_cluster(settings, rights)


@pytest.mark.parametrize("lost", ["objects", "cold"])
async def test_a_broker_does_not_start_on_an_empty_store_until_an_operator_claims_it(
    settings: Settings, tmp_path: Path, lost: str
) -> None:
    apart = replace(settings, remote=RemoteSettings(objects=f"file:{tmp_path / 'cold'}"))
    await make(apart)
    (tmp_path / lost).rename(tmp_path / "unmounted")
    if lost == "objects":
        with pytest.raises(MarkerMissingError, match=f"{tmp_path / lost} has no stratalog.json"):
            await make(apart)
        assert not (tmp_path / lost / MARKER_KEY).exists()
    command = ["store", "claim", "--objects", settings.storage.objects]
    command += ["--control", settings.storage.control]
    command += ["--set", f"remote.objects={apart.remote.objects}"]
    # The command runs a loop of its own, and so it needs a thread without one.
    declined = await asyncio.to_thread(CliRunner().invoke, app, command, input="n\n")
    assert declined.exit_code == 1
    assert not (tmp_path / lost / MARKER_KEY).exists()
    claimed = await asyncio.to_thread(CliRunner().invoke, app, [*command, "--yes"])
    assert claimed.exit_code == 0, claimed.output
    assert "".join(claimed.stdout.split()) == f"Claimedfile://{tmp_path / lost}."
    await make(apart)


async def test_a_reader_is_refused_that_looks_for_segments_elsewhere(
    settings: Settings, tmp_path: Path
) -> None:
    await make(settings)
    apart = replace(settings, remote=RemoteSettings(objects=f"file:{tmp_path / 'cold'}"))
    with pytest.raises(WrongSegmentStoreError, match=r"remote\.objects names"):
        await open_cluster(apart, Rights.READ)


@pytest.mark.parametrize("rights", OTHERS)
async def test_the_memory_of_another_process_cannot_be_opened(
    settings: Settings, rights: Rights
) -> None:
    private = replace(settings, storage=replace(settings.storage, objects="memory:"))
    with pytest.raises(PrivateStoreError, match="use a folder or a bucket"):
        await open_cluster(private, rights)


def with_secrets(settings: Settings) -> Settings:
    return replace(
        settings,
        storage=StorageSettings(
            objects="s3://bucket",
            control="postgresql://user:hush@host/db",
            object_options={"secret_access_key": "hush"},
        ),
        remote=RemoteSettings(
            encryption_key="key1",
            public_keys={"key1": str(GOLDEN / "test-only-public.pem")},
            private_keys={"key1": str(GOLDEN / "test-only-private.pem")},
        ),
    )


@pytest.mark.parametrize("keys", WorkerKeys)
def test_the_access_of_workers_is_pickled_whole_and_printed_without_secrets(
    settings: Settings, keys: WorkerKeys
) -> None:
    access = worker_access(with_secrets(settings), keys)
    assert pickle.loads(pickle.dumps(access)) == access
    assert "hush" not in repr(access)
    assert "KEY-----" not in repr(access)
    assert b"postgresql" not in pickle.dumps(access), "workers know no control plane"


def test_a_private_key_goes_only_to_workers_that_open_segments(settings: Settings) -> None:
    private = {
        keys: bool(worker_access(with_secrets(settings), keys).keys.private) for keys in WorkerKeys
    }
    assert private == {WorkerKeys.NONE: False, WorkerKeys.SEALING: False, WorkerKeys.OPENING: True}


async def access_of(settings: Settings) -> WorkerAccess:
    async with opened_cluster(settings, Rights.CHANGE) as cluster:
        return await cluster.for_workers()


async def test_a_worker_knows_the_stores_of_its_cluster(settings: Settings, tmp_path: Path) -> None:
    await make(settings)
    access = await access_of(settings)
    await access.check_stores(SYSTEM_CLOCK)
    (tmp_path / "objects" / MARKER_KEY).unlink()
    with pytest.raises(WorkerStoreError, match="is not this cluster's store on"):
        await access.check_stores(SYSTEM_CLOCK)


async def test_workers_of_a_cluster_without_brokers_expect_no_marker(settings: Settings) -> None:
    await make(settings)
    unclaimed = replace(await access_of(settings), cluster_id=None)
    await unclaimed.check_stores(SYSTEM_CLOCK)
