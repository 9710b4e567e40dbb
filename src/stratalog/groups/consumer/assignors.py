"""The server-side assignors, by the names that clients use for them."""

from stratalog.groups.consumer.assignment import Assignor
from stratalog.groups.consumer.model import DEFAULT_ASSIGNOR
from stratalog.groups.consumer.range_assignor import assign_ranges
from stratalog.groups.consumer.uniform_assignor import assign_uniformly

ASSIGNORS: dict[str, Assignor] = {DEFAULT_ASSIGNOR: assign_uniformly, "range": assign_ranges}
