from typing import Any

import pytest
from tests.unit.admin.office import ALICE, Office

from stratalog.admin.config_changes import AskedChange, ConfigOperation
from stratalog.admin.config_description import ConfigSource, ResourceType
from stratalog.admin.configs import ConfigReplacement, ConfigResource, ConfigUpdate
from stratalog.admin.entries import DONE
from stratalog.errors import CallError
from stratalog.groups.errors import GroupConfigError, InvalidGroupIdError

READERS = ConfigResource(ResourceType.GROUP, "readers")
SESSION = "consumer.session.timeout.ms"
HEARTBEAT = "consumer.heartbeat.interval.ms"


async def described(office: Office) -> dict[str, tuple[ConfigSource, str]]:
    found = await office.admin.configs.describe(ALICE, READERS)
    return {one.name: (one.candidates[0].source, one.candidates[0].value) for one in found}


async def update(office: Office, *changes: tuple[str, int, str | None], **more: bool) -> object:
    asked = ConfigUpdate(resource=READERS, changes=[AskedChange(*one) for one in changes])
    return (await office.admin.configs.update(ALICE, [asked], **more))[READERS]


async def replace(office: Office, *configs: tuple[str, str | None]) -> object:
    asked = ConfigReplacement(resource=READERS, configs=configs)
    return (await office.admin.configs.replace(ALICE, [asked]))[READERS]


async def test_a_group_that_does_not_exist_yet_has_the_defaults(office: Office) -> None:
    assert await described(office) == {
        SESSION: (ConfigSource.DEFAULT, "45000"),
        HEARTBEAT: (ConfigSource.DEFAULT, "5000"),
    }


async def test_an_update_sets_and_unsets_and_a_replacement_keeps_nothing_else(
    office: Office,
) -> None:
    wanted = [(SESSION, ConfigOperation.SET, "50000"), (HEARTBEAT, ConfigOperation.SET, "9000")]
    assert await update(office, *wanted) == DONE
    assert await described(office) == {
        SESSION: (ConfigSource.GROUP, "50000"),
        HEARTBEAT: (ConfigSource.GROUP, "9000"),
    }
    listed = await office.admin.configs.resources(ALICE, [ResourceType.GROUP])
    assert listed == [READERS]
    assert await update(office, (SESSION, ConfigOperation.DELETE, None)) == DONE
    assert (await described(office))[SESSION] == (ConfigSource.DEFAULT, "45000")
    assert await replace(office, (SESSION, "60000")) == DONE
    assert await office.control.groups.configs() == {"readers": {SESSION: "60000"}}
    assert await replace(office) == DONE
    assert await office.control.groups.configs() == {}


async def test_validation_changes_nothing(office: Office) -> None:
    change = (SESSION, ConfigOperation.SET, "50000")
    assert await update(office, change, validate_only=True) == DONE
    assert await office.control.groups.configs() == {}


@pytest.mark.parametrize(
    ("change", "error"),
    [
        (("consumer.session.timeout", ConfigOperation.SET, "50000"), GroupConfigError),
        (("share.session.timeout.ms", ConfigOperation.SET, "50000"), GroupConfigError),
        ((SESSION, ConfigOperation.SET, "-1"), GroupConfigError),
        ((SESSION, ConfigOperation.SET, "soon"), GroupConfigError),
        ((SESSION, ConfigOperation.SET, "5999"), GroupConfigError),
        ((SESSION, ConfigOperation.SET, "1800001"), GroupConfigError),
        ((SESSION, ConfigOperation.SET, None), GroupConfigError),
        ((SESSION, ConfigOperation.APPEND, "50000"), GroupConfigError),
        ((HEARTBEAT, ConfigOperation.SET, "0"), GroupConfigError),
        ((HEARTBEAT, ConfigOperation.SET, "45000"), GroupConfigError),
    ],
)
async def test_a_config_that_a_group_cannot_have_is_refused(
    office: Office, change: tuple[str, int, str | None], error: type[Exception]
) -> None:
    assert isinstance(await update(office, change), error)
    assert await office.control.groups.configs() == {}


async def test_a_config_that_is_named_twice_is_refused(office: Office) -> None:
    change: Any = (SESSION, ConfigOperation.SET, "50000")
    assert isinstance(await update(office, change, change), CallError)


async def test_a_group_needs_a_name(office: Office) -> None:
    with pytest.raises(InvalidGroupIdError):
        await office.admin.configs.describe(ALICE, ConfigResource(ResourceType.GROUP, ""))
