"""Configs as fields of responses."""

from stratalog.admin.config_description import DescribedConfig
from stratalog.kafka.wire.schema_writer import Values


def config_values(config: DescribedConfig, *, synonyms: bool, documentation: bool) -> Values:
    holding = config.candidates[0]
    return {
        "name": config.name,
        "value": holding.value,
        "read_only": config.read_only,
        "config_source": holding.source,
        "is_sensitive": False,
        "synonyms": [
            {"name": other.name, "value": other.value, "source": other.source}
            for other in (config.candidates if synonyms else ())
        ],
        "config_type": config.type,
        "documentation": config.documentation if documentation else None,
    }
