"""A key pair for encrypted segments, and settings that have it."""

from pathlib import Path

from stratalog.settings import RemoteSettings

_GOLDEN = Path(__file__).parents[1] / "golden"
PUBLIC, PRIVATE = _GOLDEN / "test-only-public.pem", _GOLDEN / "test-only-private.pem"
KEYED = RemoteSettings(public_keys={"k": str(PUBLIC)}, private_keys={"k": str(PRIVATE)})
