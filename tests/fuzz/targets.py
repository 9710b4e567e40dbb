"""All targets of the fuzzer."""

from tests.fuzz.batch_targets import batch_targets
from tests.fuzz.compiled_targets import compiled_targets
from tests.fuzz.judge import Target
from tests.fuzz.store_targets import store_targets
from tests.fuzz.wire_targets import wire_targets


def all_targets() -> list[Target]:
    return [*wire_targets(), *batch_targets(), *compiled_targets(), *store_targets()]
