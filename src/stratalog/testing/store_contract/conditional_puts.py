"""Puts and copies with a condition, also among racers and when a reply is lost."""

import asyncio
import os
from typing import ClassVar

import pytest

from stratalog.clock import SystemClock
from stratalog.objects import (
    Create,
    Fault,
    FaultyStore,
    ObjectChangedError,
    ObjectExistsError,
    ObjectStore,
    Replace,
    RetryPolicy,
    ScriptedFaults,
)
from stratalog.objects.retrying import RetryingStore
from stratalog.retry import Backoff
from stratalog.testing.store_contract.stored_objects import keys, read

_CLOCK = SystemClock()
_QUICK = RetryPolicy(attempts=4, backoff=Backoff(first_s=0.001))


async def _outcome(put: "asyncio.Task[str]") -> str | type[Exception]:
    try:
        return await put
    except (ObjectExistsError, ObjectChangedError) as error:
        return type(error)


class ConditionalPutContract:
    racers: ClassVar[int] = 20
    """Puts that race. A server that is right but slow may take fewer."""

    async def test_create_refuses_a_key_that_is_taken(self, store: ObjectStore) -> None:
        await store.put("x", [b"mine"], mode=Create(), metadata={"owner": "me"})
        with pytest.raises(ObjectExistsError, match="x"):
            await store.put("x", [b"mine"], mode=Create(), metadata={"owner": "me"})
        assert await read(store, "x") == b"mine"
        await store.delete(["x"])
        await store.put("x", [b"yours"], mode=Create())
        assert await read(store, "x") == b"yours"

    async def test_of_many_creators_one_wins(self, store: ObjectStore) -> None:
        for attempt in range(3):
            puts = [
                asyncio.create_task(
                    store.put(
                        f"race/{attempt}", [b"%d" % racer], mode=Create(), metadata={"r": "1"}
                    )
                )
                for racer in range(self.racers)
            ]
            outcomes = await asyncio.gather(*map(_outcome, puts))
            winners = [racer for racer, result in enumerate(outcomes) if isinstance(result, str)]
            assert len(winners) == 1
            assert await read(store, f"race/{attempt}") == b"%d" % winners[0]

    async def test_replace_needs_the_version_that_is_there(self, store: ObjectStore) -> None:
        first = await store.put("x", [b"1"])
        second = await store.put("x", [b"2"], mode=Replace(etag=first), metadata={"version": "2"})
        with pytest.raises(ObjectChangedError):
            await store.put("x", [b"3"], mode=Replace(etag=first))
        stored = await store.get("x")
        assert (bytes(stored.data), stored.info.etag) == (b"2", second)
        assert stored.info.metadata == {"version": "2"}

    async def test_replace_of_nothing_is_refused(self, store: ObjectStore) -> None:
        etag = await store.put("x", [b"1"])
        await store.delete(["x"])
        with pytest.raises(ObjectChangedError):
            await store.put("x", [b"2"], mode=Replace(etag=etag))
        assert await keys(store) == []

    async def test_of_many_replacers_one_wins(self, store: ObjectStore) -> None:
        etag = await store.put("x", [b"start"])
        puts = [
            asyncio.create_task(store.put("x", [b"%d" % racer], mode=Replace(etag=etag)))
            for racer in range(self.racers)
        ]
        outcomes = await asyncio.gather(*map(_outcome, puts))
        winners = [racer for racer, result in enumerate(outcomes) if isinstance(result, str)]
        assert len(winners) == 1
        assert await read(store, "x") == b"%d" % winners[0]

    async def test_a_conditional_copy_keeps_its_condition(self, store: ObjectStore) -> None:
        await store.put("source", [b"data"], metadata={"epoch": "7"})
        etag = await store.put("taken", [b"old"])
        with pytest.raises(ObjectExistsError):
            await store.copy("source", "taken", mode=Create())
        with pytest.raises(ObjectChangedError):
            await store.copy("source", "taken", mode=Replace(etag="another"))
        assert await read(store, "taken") == b"old"
        await store.copy("source", "taken", mode=Replace(etag=etag))
        await store.copy("source", "free", mode=Create())
        assert await read(store, "taken") == await read(store, "free") == b"data"
        assert (await store.head("free")).metadata == {"epoch": "7"}

    @pytest.mark.parametrize("mode", ["create", "replace"])
    async def test_a_conditional_put_whose_reply_was_lost_knows_its_own_object(
        self, store: ObjectStore, mode: str
    ) -> None:
        script = ScriptedFaults([("put", Fault.LOST_REPLY), ("put", Fault.LOST_REPLY)])
        faulty = FaultyStore(store, script, clock=_CLOCK)
        patient = RetryingStore(faulty, clock=_CLOCK, entropy=os.urandom, policy=_QUICK)
        if mode == "create":
            etag = await patient.put("x", [b"mine"], mode=Create(), metadata={"k": "v"})
        else:
            first = await store.put("x", [b"old"])
            etag = await patient.put("x", [b"mine"], mode=Replace(etag=first), metadata={"k": "v"})
        assert not script.remaining
        stored = await store.get("x")
        assert (bytes(stored.data), stored.info.etag) == (b"mine", etag)
        assert stored.info.metadata == {"k": "v"}

    async def test_a_create_whose_request_was_lost_does_not_take_a_strangers_object_for_its_own(
        self,
        store: ObjectStore,
    ) -> None:
        class StrangerIsFaster(FaultyStore):
            async def _before(self, operation: str, key: str) -> Fault | None:
                if script.remaining:
                    await store.put(key, [b"mine"], mode=Create())
                return await super()._before(operation, key)

        script = ScriptedFaults([("put", Fault.UNAVAILABLE)])
        faulty = StrangerIsFaster(store, script, clock=_CLOCK)
        patient = RetryingStore(faulty, clock=_CLOCK, entropy=os.urandom, policy=_QUICK)
        with pytest.raises(ObjectExistsError):
            await patient.put("x", [b"mine"], mode=Create())
