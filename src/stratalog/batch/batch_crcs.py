"""The CRCs of many batches, checked at once. Importing this loads the compiler, and a compiled
loop."""

from collections.abc import Callable
from typing import Any

from crc32c import crc32c

from stratalog.batch.addresses import address_of
from stratalog.batch.code_cache import has_crc_instruction
from stratalog.batch.header import CRC_START, BytesLike

all_right: Callable[[int, Any], int] | None = None
"""Where the processor has no instruction for it, the library knows other ways."""
if has_crc_instruction():
    from stratalog.batch.compiled_crc import all_right

_FEW = 3
"""The compiled loop checks so many batches side by side. The library is faster with fewer of them,
because it checks several places of one batch side by side."""


def are_right(data: BytesLike, batches: Any) -> bool:
    """Tell whether the CRCs hold. The first columns of `batches` are start, end and CRC of each."""
    if all_right is not None and len(batches) >= _FEW:
        address, held = address_of(data)
        is_right = bool(all_right(address, batches))
        del held
        return is_right
    view = memoryview(data)
    return all(
        crc32c(view[start + CRC_START : end]) == crc for start, end, crc in batches[:, :3].tolist()
    )
