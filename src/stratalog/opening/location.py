"""Where a cluster is: one way to say it, for the command line, `stratalog.read` and Spark.

`data`, `objects`, `control` and `config` are flags on the command line, arguments of
`stratalog.read` and options in Spark, with the same defaults, precedence and errors.

Later sources win: the defaults, the settings file, the environment, `--set`, `data`, then `objects`
and `control`. The settings file is `config`, else `$STRATALOG_CONFIG`, else `./stratalog.toml`.
"""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from stratalog.environment import ENVIRONMENT
from stratalog.errors import SettingsError
from stratalog.objects.open import absolute_url
from stratalog.settings import Settings
from stratalog.settings_source import find_settings_file, load_settings

LOCATION_NAMES = ("data", "objects", "control", "config")


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterLocation:
    """The four names as they were given. Nothing given means the settings of this place."""

    data: str | os.PathLike[str] | None = None
    """The folder that holds objects and control plane."""
    objects: str | None = None
    """The address of the object store."""
    control: str | None = field(default=None, repr=False)
    """The address of the control plane. Not in the repr, because it may hold a password."""
    config: str | os.PathLike[str] | None = None
    """The settings file."""

    def settings(
        self,
        overrides: Sequence[str] = (),
        *,
        flags: Sequence[str] = (),
        environment: Mapping[str, str] = ENVIRONMENT,
        directory: Path | None = None,
    ) -> Settings:
        """Return the settings of the cluster. `overrides` are given in the form of `--set`, and
        `flags` are overrides that win over everything else."""
        self._check()
        given = [*overrides, *self._overrides(), *flags]
        config = None if self.config is None else Path(self.config)
        return load_settings(config, given, environment=environment, directory=directory)

    def settings_file(self) -> Path | None:
        """Return the settings file that counts, if there is one."""
        config = None if self.config is None else Path(self.config)
        return find_settings_file(config, ENVIRONMENT, Path.cwd())

    def names_a_cluster(self) -> bool:
        """Return whether anything but the defaults says where the cluster is."""
        given = (self.data, self.objects, self.control)
        return any(one is not None for one in given) or self.settings_file() is not None

    def absolute(self) -> "ClusterLocation":
        """Return the same location for processes with other working folders and environments."""
        file = self.settings_file()
        return replace(
            self,
            data=None if self.data is None else str(Path(self.data).absolute()),
            objects=None if self.objects is None else absolute_url(self.objects),
            control=None if self.control is None else _absolute_control(self.control),
            config=None if file is None else str(file.absolute()),
        )

    def given(self) -> dict[str, str]:
        """Return the names that were given, with their texts."""
        values = {name: getattr(self, name) for name in LOCATION_NAMES}
        return {name: str(value) for name, value in values.items() if value is not None}

    def _check(self) -> None:
        for name, text in self.given().items():
            if not text.strip():
                raise SettingsError(f"{name} is empty: leave it out, or give a value")
        if self.data is not None and ":/" in str(self.data):
            raise SettingsError(
                "data must be a folder, not an address: name a store by objects and a database by"
                " control"
            )

    def _overrides(self) -> list[str]:
        given = []
        if self.data is not None:
            folder = Path(self.data)
            given.append(f"storage.objects=file:{folder / 'objects'}")
            given.append(f"storage.control=sqlite:{folder / 'control.db'}")
        if self.objects is not None:
            given.append(f"storage.objects={self.objects}")
        if self.control is not None:
            given.append(f"storage.control={self.control}")
        return given


def _absolute_control(url: str) -> str:
    scheme, _, path = url.partition(":")
    return f"sqlite:{Path(path).absolute()}" if scheme == "sqlite" else url
