"""An announced writer for tests that upload objects without a broker."""

from uuid import UUID

from stratalog.control.plane import ControlPlane
from stratalog.control.writers.model import WriterKind
from stratalog.ids import Entropy, WriterTag, system_entropy, tagged_uuid7

TAG = WriterTag(0x7E575)


async def announced_id(
    control: ControlPlane, now_ms: int, entropy: Entropy = system_entropy
) -> UUID:
    """Return the id of an object whose writer is announced."""
    await control.writers.announce(TAG, WriterKind.UNKNOWN)
    return tagged_uuid7(now_ms, TAG, entropy)
