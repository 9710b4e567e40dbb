"""The one door to the environment variables of this process."""

import os
from collections.abc import MutableMapping
from typing import Final

ENVIRONMENT: Final[MutableMapping[str, str]] = os.environ
"""Rooms take a mapping as an argument and have this one as its default."""
