"""The hash by which Kafka's Java client chooses a key's partition.

Every other writer to a topic must choose the same partitions, or records of one key would lie in
two of them and lose their order.
"""

_SEED = 0x9747B28C
_MULTIPLIER = 0x5BD1E995
_MASK = 0xFFFFFFFF
_POSITIVE = 0x7FFFFFFF


def murmur2(data: bytes) -> int:
    """MurmurHash2 of 32 bits, unsigned, with the seed of Kafka's clients."""
    mixed = _SEED ^ len(data)
    whole_end = len(data) & ~3
    for at in range(0, whole_end, 4):
        word = int.from_bytes(data[at : at + 4], "little") * _MULTIPLIER & _MASK
        word = (word ^ word >> 24) * _MULTIPLIER & _MASK
        mixed = (mixed * _MULTIPLIER & _MASK) ^ word
    if whole_end < len(data):
        mixed = (mixed ^ int.from_bytes(data[whole_end:], "little")) * _MULTIPLIER & _MASK
    mixed = (mixed ^ mixed >> 13) * _MULTIPLIER & _MASK
    return mixed ^ mixed >> 15


def partition_of_key(key: bytes, partition_count: int) -> int:
    """Where the Java client's default partitioner puts a record with this key."""
    return (murmur2(key) & _POSITIVE) % partition_count
