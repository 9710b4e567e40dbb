"""The rules of a janitor, by the settings that are in force in its cluster."""

from stratalog.janitor.service import Rules
from stratalog.opening.cluster_settings import SettingsInForce
from stratalog.topic.retention import retention_by


def rules_of(in_force: SettingsInForce) -> Rules:
    settings = in_force.settings
    return Rules(
        settings=settings.janitor,
        offsets_retention_ms=settings.groups.offsets_retention_ms,
        retention_of=retention_by(
            settings.topic,
            earlier_defaults=in_force.earlier_defaults,
            window_began_ms=in_force.now_ms - settings.janitor.retention_window_ms,
        ),
        differing=in_force.differing,
    )
