"""Deleted topics: found by name and id, brought back, and given up early."""

import logging

import pytest
from tests.unit.admin.office import ALICE, Office

from stratalog.admin.errors import (
    DeletedTopicChoiceError,
    InvalidTopicNameError,
    TopicAccessDeniedError,
)
from stratalog.admin.topics import TopicName
from stratalog.control.topics.errors import TopicExistsError, UnknownTopicError
from stratalog.control.topics.model import Topic
from stratalog.ids import kafka_base64


async def _delete(office: Office, name: str) -> Topic:
    wanted = TopicName(name=name)
    deleted = (await office.admin.topics.delete(ALICE, [wanted]))[wanted]
    assert isinstance(deleted, Topic)
    return deleted


async def test_a_deletion_and_an_undeletion_leave_lines_in_the_log(
    office: Office, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        await _delete(office, "orders")
        found = await office.admin.deleted_topics.find(ALICE, "orders")
        await office.admin.deleted_topics.undelete(ALICE, found)
    assert [line for line in caplog.messages if "User:alice" in line and "'orders'" in line]
    assert "deleted topic 'orders'" in caplog.messages[0]
    assert "undeleted topic 'orders'" in caplog.messages[1]
    assert (await office.admin.topics.find(ALICE, "orders")).id == office.orders.id


async def test_one_of_several_deleted_topics_of_a_name_is_chosen_by_its_id(office: Office) -> None:
    first = await _delete(office, "orders")
    await office.control.topics.create("orders", partition_count=1, configs={})
    await _delete(office, "orders")
    with pytest.raises(DeletedTopicChoiceError, match=kafka_base64(first.id)):
        await office.admin.deleted_topics.find(ALICE, "orders")
    found = await office.admin.deleted_topics.find(ALICE, "orders", kafka_base64(first.id))
    assert found.id == first.id
    with pytest.raises(UnknownTopicError, match="list --deleted"):
        await office.admin.deleted_topics.find(ALICE, "others")


async def test_a_name_that_is_taken_again_needs_another(office: Office) -> None:
    await _delete(office, "orders")
    await office.control.topics.create("orders", partition_count=1, configs={})
    await office.control.topics.create("some.thing", partition_count=1, configs={})
    found = await office.admin.deleted_topics.find(ALICE, "orders")
    with pytest.raises(TopicExistsError):
        await office.admin.deleted_topics.undelete(ALICE, found)
    for bad in ("no/name", "some_thing"):
        with pytest.raises(InvalidTopicNameError):
            await office.admin.deleted_topics.undelete(ALICE, found, name=bad)
    await office.admin.deleted_topics.undelete(ALICE, found, name="older")
    assert (await office.admin.topics.find(ALICE, "older")).id == office.orders.id


async def test_a_topic_that_was_given_up_cannot_be_undeleted(office: Office) -> None:
    await _delete(office, "orders")
    found = await office.admin.deleted_topics.find(ALICE, "orders")
    await office.admin.deleted_topics.purge(ALICE, [found])
    [listed] = await office.admin.deleted_topics.all(ALICE)
    assert listed.purge_ms is not None
    with pytest.raises(UnknownTopicError):
        await office.admin.deleted_topics.undelete(ALICE, found)


async def test_rights_are_asked_for(office: Office) -> None:
    await _delete(office, "orders")
    found = await office.admin.deleted_topics.find(ALICE, "orders")
    office.doorkeeper.refused = lambda right, name: True
    assert await office.admin.deleted_topics.all(ALICE) == []
    with pytest.raises(TopicAccessDeniedError):
        await office.admin.deleted_topics.undelete(ALICE, found)
    with pytest.raises(TopicAccessDeniedError):
        await office.admin.deleted_topics.purge(ALICE, [found])
