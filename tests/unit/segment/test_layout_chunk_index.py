import pickle
from base64 import b64decode, b64encode

import pytest
from tests.unit.segment.layout_golden import Mode

from stratalog.objects import Range
from stratalog.segment.chunk_index import (
    AnyChunks,
    FixedChunks,
    VariableChunks,
    chunks_between,
    parse_chunks,
)
from stratalog.segment.chunk_sizes import MAX_PACKED_BYTES, pack_sizes, unpack_sizes
from stratalog.segment.json_object import JsonObject
from stratalog.segment.zstd_frame import compress_frame

GOLDEN_SIZES = "KLUv/SAjGQEAAAAADAAA+PICANgAuQEwAtEABQAAAmcBBwJNAFsAqwAAht4="

FIXED = FixedChunks(
    chunk_bytes=100, original_bytes=250, stored_chunk_bytes=110, final_stored_bytes=80
)
VARIABLE = VariableChunks(chunk_bytes=100, original_bytes=250, stored_sizes=(30, 20, 10))


def parsed(fields: dict[str, object]) -> AnyChunks:
    return parse_chunks(JsonObject(fields, "chunkIndex"))


def test_fixed_chunks_are_where_the_plugin_puts_them() -> None:
    assert [FIXED.stored_range(i) for i in range(3)] == [
        Range(0, 110),
        Range(110, 220),
        Range(220, 300),
    ]
    assert (FIXED.count, FIXED.stored_bytes) == (3, 300)


def test_variable_chunks_are_where_the_plugin_puts_them() -> None:
    assert [VARIABLE.stored_range(i) for i in range(3)] == [
        Range(0, 30),
        Range(30, 50),
        Range(50, 60),
    ]
    assert (VARIABLE.count, VARIABLE.stored_bytes) == (3, 60)


@pytest.mark.parametrize("chunks", [FIXED, VARIABLE])
def test_every_chunk_but_the_last_holds_the_same_number_of_bytes(chunks: AnyChunks) -> None:
    assert [chunks.original_range(i) for i in range(3)] == [
        Range(0, 100),
        Range(100, 200),
        Range(200, 250),
    ]


@pytest.mark.parametrize("chunks", [FIXED, VARIABLE])
def test_a_chunk_index_survives_json_and_another_process(chunks: AnyChunks) -> None:
    assert parsed(chunks.to_json()) == chunks
    other = pickle.loads(pickle.dumps(chunks))
    assert other == chunks
    assert other.stored_range(2) == chunks.stored_range(2)


def test_a_log_that_fills_its_last_chunk_has_no_empty_one() -> None:
    chunks = FixedChunks(
        chunk_bytes=100, original_bytes=200, stored_chunk_bytes=100, final_stored_bytes=100
    )
    assert chunks.count == 2
    assert chunks.stored_range(1) == Range(100, 200)


@pytest.mark.parametrize(
    ("start", "end", "wanted"),
    [
        (0, 1, [0]),
        (0, 100, [0]),
        (99, 101, [0, 1]),
        (100, 101, [1]),
        (199, 250, [1, 2]),
        (249, 9999, [2]),
        (250, 9999, []),
        (50, 50, []),
    ],
)
def test_a_range_of_the_log_names_the_chunks_that_hold_it(
    start: int, end: int, wanted: list[int]
) -> None:
    assert list(chunks_between(FIXED, start, end)) == wanted


def test_the_sizes_of_the_plugin_are_read_and_written_as_they_are() -> None:
    sizes = unpack_sizes(b64decode(GOLDEN_SIZES))
    golden = Mode(compress=True, encrypt=False)
    assert sum(sizes) == len(golden.log)
    assert b64encode(pack_sizes(sizes)).decode() == GOLDEN_SIZES


@pytest.mark.parametrize(
    "sizes",
    [
        (),
        (7,),
        (7, 7),
        (1, 2**31 - 1),
        (1, 256, 3),
        (1, 257, 3),
        (0x1_0000, 0x1_0000 - 0xFFFF, 9),
        (2**31 - 1, 1, 2**31 - 1),
        (5, 5, 5, 1),
    ],
)
def test_sizes_come_back_whatever_they_are(sizes: tuple[int, ...]) -> None:
    assert unpack_sizes(pack_sizes(sizes)) == sizes


@pytest.mark.parametrize(
    "packed",
    [
        "",
        "000000",
        "ffffffff",
        "00000001",
        "0000000100000007ff",
        "00000002000000070100",
        "000000020000000701000000000700",
        "0000000200000007000000000007",
        "000000020000000705000000000000000007",
        "0000000c0000f8f202",
    ],
)
def test_damaged_sizes_are_refused(packed: str) -> None:
    with pytest.raises(ValueError, match=r"chunk sizes|damaged"):
        unpack_sizes(compress_frame(bytes.fromhex(packed)))


def test_sizes_that_would_take_too_much_memory_are_refused_before_they_are_unpacked() -> None:
    with pytest.raises(ValueError, match="more than"):
        unpack_sizes(compress_frame(bytes(MAX_PACKED_BYTES + 1)))
    with pytest.raises(ValueError, match="take"):
        unpack_sizes(compress_frame(bytes(MAX_PACKED_BYTES)))


@pytest.mark.parametrize(
    "change",
    [
        {"type": "other"},
        {"type": None},
        {"originalChunkSize": 0},
        {"originalFileSize": -1},
        {"originalFileSize": 2**31},
        {"originalFileSize": "250"},
        {"originalFileSize": True},
        {"transformedChunkSize": 0},
        {"transformedChunkSize": -1},
        {"finalTransformedChunkSize": 0},
        {"unknown": 1},
    ],
)
def test_a_fixed_index_that_makes_no_sense_is_refused(change: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="chunk"):
        parsed(FIXED.to_json() | change)


@pytest.mark.parametrize(
    "change",
    [
        {"originalFileSize": 300 + 1},
        {"originalFileSize": 200},
        {"transformedChunks": "no base 64"},
        {"transformedChunks": b64encode(b"no zstd").decode()},
        {"transformedChunks": b64encode(pack_sizes((30, 0, 10))).decode()},
        {"transformedChunks": b64encode(pack_sizes((30, 20, -10))).decode()},
        {"transformedChunkSize": 1},
    ],
)
def test_a_variable_index_that_makes_no_sense_is_refused(change: dict[str, object]) -> None:
    assert parsed(VARIABLE.to_json() | {"originalFileSize": 300})
    with pytest.raises(ValueError, match=r"chunk|zstd"):
        parsed(VARIABLE.to_json() | change)


@pytest.mark.parametrize("field", ["type", "originalChunkSize", "finalTransformedChunkSize"])
def test_every_field_of_an_index_must_be_there(field: str) -> None:
    fields = FIXED.to_json()
    del fields[field]
    with pytest.raises(ValueError, match=f"{field} is missing"):
        parsed(fields)
