"""Objects that Aiven's plugin wrote, with their source files and their random bytes.

The producer snapshot and the transaction index are taken from the plain `.indexes` object, where
they lie as they are.
"""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from uuid import UUID

from Crypto.Hash import SHA3_512
from Crypto.PublicKey import RSA
from Crypto.Signature.pss import MGF1

from stratalog.control.segments.model import EpochStart, SegmentToAdd
from stratalog.ids import (
    BrokerId,
    Entropy,
    LeaderEpoch,
    Offset,
    PartitionIndex,
    SegmentId,
    TopicId,
)
from stratalog.segment.key_ring import KeyRing
from stratalog.segment.keys import INDEXES_SUFFIX, LOG_SUFFIX, MANIFEST_SUFFIX
from stratalog.segment.manifest import Manifest, parse_manifest
from stratalog.segment.model import IndexKind, SegmentIndexes

GOLDEN = Path(__file__).parents[2] / "golden"
PUBLIC_PEM = GOLDEN / "test-only-public.pem"
PRIVATE_PEM = GOLDEN / "test-only-private.pem"

TOPIC = "topic1"
TOPIC_ID = TopicId(UUID("959eafbe-66a3-4d62-8305-44d5e92400b5"))
SEGMENT_ID = SegmentId(UUID("69d87d7f-c04c-4b86-a769-49c3f0a59f5a"))
PREFIX = "pfx/"
KEY_BASE = "pfx/topic1-lZ6vvmajTWKDBUTV6SQAtQ/7/00000000000000005000-adh9f8BMS4anaUnD8KWfWg"
CHUNK_BYTES = 65536
EVENT_MS = 1_700_000_500_000
LOG = (GOLDEN / "segment_kafka411" / "00000000000000005000.log").read_bytes()

SEGMENT = SegmentToAdd(
    segment_id=SEGMENT_ID,
    topic_id=TOPIC_ID,
    partition=PartitionIndex(7),
    base_offset=Offset(5000),
    last_offset=Offset(9453),
    size_bytes=len(LOG),
    max_timestamp=1_700_000_400_000,
    leader_epochs=[EpochStart(LeaderEpoch(3), Offset(5000))],
    key_base=KEY_BASE,
    broker_id=BrokerId(1),
)


@dataclass(frozen=True)
class Mode:
    compress: bool
    encrypt: bool

    def __str__(self) -> str:
        return f"compress-{self.compress}_encrypt-{self.encrypt}".lower()

    @property
    def log(self) -> bytes:
        return self._read(LOG_SUFFIX)

    @property
    def indexes(self) -> bytes:
        return self._read(INDEXES_SUFFIX)

    @property
    def manifest_text(self) -> str:
        return self._read(MANIFEST_SUFFIX).decode()

    @property
    def manifest(self) -> Manifest:
        return parse_manifest(self.manifest_text, KEY_BASE + MANIFEST_SUFFIX)

    def _read(self, suffix: str) -> bytes:
        return (GOLDEN / f"aiven_{self}" / (KEY_BASE + suffix)).read_bytes()


MODES = [Mode(compress, encrypt) for compress, encrypt in product((False, True), repeat=2)]
PLAIN = Mode(compress=False, encrypt=False)


def _file(name: str) -> bytes:
    return (GOLDEN / "segment_kafka411" / f"00000000000000005000.{name}").read_bytes()


INDEXES = SegmentIndexes(
    offset=_file("index"),
    timestamp=_file("timeindex"),
    producer_snapshot=PLAIN.indexes[2408:2510],
    leader_epoch=(GOLDEN / "leader-epoch-checkpoint").read_bytes(),
    transaction=PLAIN.indexes[2525:],
)


def key_ring(entropy: Entropy | None = None) -> KeyRing:
    files = {"key1": PUBLIC_PEM}, {"key1": PRIVATE_PEM}, "key1"
    return KeyRing.load(*files) if entropy is None else KeyRing.load(*files, entropy=entropy)


class Recorded:
    """The random bytes that made an encrypted segment, in the order in which we ask for them."""

    def __init__(self, mode: Mode) -> None:
        self._left = deque(_random_bytes(mode))

    def __call__(self, size: int) -> bytes:
        taken = self._left.popleft()
        assert len(taken) == size
        return taken

    @property
    def used_up(self) -> bool:
        return not self._left


def _random_bytes(mode: Mode) -> Iterator[bytes]:
    manifest = mode.manifest
    assert manifest.encryption is not None
    data_key, seed = _open_envelope(manifest.encryption.sealed_key)
    yield data_key
    yield manifest.encryption.aad
    yield seed
    for chunk in range(manifest.chunks.count):
        start = manifest.chunks.stored_range(chunk).start
        yield mode.log[start : start + 12]
    for kind in IndexKind:
        start = manifest.indexes[kind].position
        yield mode.indexes[start : start + 12]


def _open_envelope(sealed: bytes) -> tuple[bytes, bytes]:
    """The data key and the random seed that OAEP (RFC 8017, 7.1) mixed into its envelope."""
    key = RSA.import_key(PRIVATE_PEM.read_bytes())
    opened = pow(int.from_bytes(sealed), key.d, key.n).to_bytes(len(sealed))
    masked_seed, masked_block = opened[1:65], opened[65:]
    seed = _xor(masked_seed, MGF1(masked_block, 64, SHA3_512.new()))
    block = _xor(masked_block, MGF1(seed, len(masked_block), SHA3_512.new()))
    return block[-32:], seed


def _xor(left: bytes, right: bytes) -> bytes:
    return bytes(a ^ b for a, b in zip(left, right, strict=True))
