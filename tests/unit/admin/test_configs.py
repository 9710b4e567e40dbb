import pytest
from tests.unit.admin.office import ALICE, Office

from stratalog.admin.config_changes import AskedChange, ConfigOperation
from stratalog.admin.config_description import ResourceType
from stratalog.admin.configs import ConfigReplacement, ConfigResource, ConfigUpdate
from stratalog.admin.entries import DONE
from stratalog.admin.errors import DuplicateEntryError
from stratalog.control.topics.errors import UnknownTopicError
from stratalog.errors import CallError, TopicConfigError

ORDERS = ConfigResource(ResourceType.TOPIC, "orders")
SET_RETENTION = AskedChange("retention.ms", ConfigOperation.SET, "9")


async def set_configs(office: Office) -> dict[str, str]:
    return dict((await office.admin.topics.find(ALICE, "orders")).configs)


def replacement(resource: ConfigResource = ORDERS) -> ConfigReplacement:
    return ConfigReplacement(resource=resource, configs=[("retention.ms", "9")])


async def test_a_replacement_unsets_the_configs_that_it_does_not_name(office: Office) -> None:
    outcomes = await office.admin.configs.replace(ALICE, [replacement()])
    assert outcomes == {ORDERS: DONE}
    assert await set_configs(office) == {"retention.ms": "9"}


async def test_an_update_keeps_the_configs_that_it_does_not_name(office: Office) -> None:
    update = ConfigUpdate(resource=ORDERS, changes=[SET_RETENTION])
    assert await office.admin.configs.update(ALICE, [update]) == {ORDERS: DONE}
    assert await set_configs(office) == {"segment.ms": "77", "retention.ms": "9"}


async def test_validation_changes_nothing(office: Office) -> None:
    await office.admin.configs.replace(ALICE, [replacement()], validate_only=True)
    assert await set_configs(office) == {"segment.ms": "77"}


@pytest.mark.parametrize(
    ("resource", "error", "message"),
    [
        (ConfigResource(ResourceType.TOPIC, "nope"), UnknownTopicError, "no topic 'nope'"),
        (ConfigResource(ResourceType.BROKER, "0"), CallError, "change them and restart it"),
        (ConfigResource(16, "x"), CallError, "resources of type 16 have no configs here"),
    ],
)
async def test_only_configs_of_existing_topics_can_be_changed(
    office: Office, resource: ConfigResource, error: type[Exception], message: str
) -> None:
    outcome = (await office.admin.configs.replace(ALICE, [replacement(resource)]))[resource]
    assert isinstance(outcome, error)
    assert message in str(outcome)


async def test_a_resource_that_is_named_twice_is_not_changed(office: Office) -> None:
    outcomes = await office.admin.configs.replace(ALICE, [replacement(), replacement()])
    assert isinstance(outcomes[ORDERS], DuplicateEntryError)
    assert await set_configs(office) == {"segment.ms": "77"}


async def test_an_invalid_value_is_refused(office: Office) -> None:
    change = AskedChange("retention.ms", ConfigOperation.SET, "soon")
    update = ConfigUpdate(resource=ORDERS, changes=[change])
    assert isinstance(
        (await office.admin.configs.update(ALICE, [update]))[ORDERS], TopicConfigError
    )


async def test_the_named_configs_are_described_or_all(office: Office) -> None:
    [one] = await office.admin.configs.describe(ALICE, ORDERS, ["segment.ms"])
    assert (one.name, one.candidates[0].value) == ("segment.ms", "77")
    assert len(await office.admin.configs.describe(ALICE, ORDERS)) > 10


async def test_a_broker_describes_itself_alone(office: Office) -> None:
    own = office.membership.broker_id
    resource = ConfigResource(ResourceType.BROKER, str(own))
    [one] = await office.admin.configs.describe(ALICE, resource, ["broker.id"])
    assert one.candidates[0].value == str(own)
    with pytest.raises(CallError, match=f"this is broker {own}"):
        await office.admin.configs.describe(
            ALICE, ConfigResource(ResourceType.BROKER, str(own + 1))
        )
    assert await office.admin.configs.describe(ALICE, ConfigResource(ResourceType.BROKER, "")) == []


async def test_a_broker_has_the_pause_of_a_log_cleaner_for_scripts_that_look_for_it(
    office: Office,
) -> None:
    resource = ConfigResource(ResourceType.BROKER, str(office.membership.broker_id))
    [one] = await office.admin.configs.describe(ALICE, resource, ["log.cleaner.backoff.ms"])
    assert one.candidates[0].value == "15000"


async def test_resources_are_listed_by_type(office: Office) -> None:
    broker = ConfigResource(ResourceType.BROKER, str(office.membership.broker_id))
    assert await office.admin.configs.resources(ALICE, ResourceType) == [broker, ORDERS]
    assert await office.admin.configs.resources(ALICE, [ResourceType.TOPIC]) == [ORDERS]
    assert await office.admin.configs.resources(ALICE, []) == []


@pytest.mark.parametrize("operation", [ConfigOperation.DELETE, ConfigOperation.SET])
async def test_throttles_of_brokers_are_accepted_and_change_nothing(
    office: Office, operation: ConfigOperation
) -> None:
    value = None if operation is ConfigOperation.DELETE else "1000"
    names = ("leader.replication.throttled.rate", "follower.replication.throttled.rate")
    updates = [
        ConfigUpdate(
            resource=ConfigResource(ResourceType.BROKER, broker),
            changes=[AskedChange(name, operation, value) for name in names],
        )
        for broker in ("0", "7")
    ]
    outcomes = await office.admin.configs.update(ALICE, updates)
    assert list(outcomes.values()) == [DONE, DONE]


async def test_a_setting_of_a_broker_beside_a_throttle_is_refused(office: Office) -> None:
    changes = [
        AskedChange(name, ConfigOperation.SET, "1")
        for name in ("leader.replication.throttled.rate", "num.partitions")
    ]
    resource = ConfigResource(ResourceType.BROKER, "0")
    update = ConfigUpdate(resource=resource, changes=changes)
    outcomes = await office.admin.configs.update(ALICE, [update])
    assert isinstance(outcomes[resource], CallError)
