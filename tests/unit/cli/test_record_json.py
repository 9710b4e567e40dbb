import json

import pytest

from stratalog.cli.errors import RecordJsonError
from stratalog.cli.record_json import Record, record_from_json, record_to_json


@pytest.mark.parametrize(
    "record",
    [
        Record(),
        Record(key=b"k", value="schön".encode(), partition=3, timestamp=17),
        Record(key=b"\xff\xfe", value=b"\x00\x80"),
        Record(key=b"", value=b""),
        Record(headers=[("a", b"1"), ("a", b"\xff"), ("b", None)]),
    ],
)
def test_a_record_survives_the_way_out_and_back_in(record: Record) -> None:
    line = json.dumps(record_to_json(record, topic="t", offset=5)).encode()
    back = record_from_json(line, number=1)
    assert back == Record(
        key=record.key,
        value=record.value,
        headers=list(record.headers),
        partition=record.partition,
        timestamp=record.timestamp,
    )


def test_bytes_that_are_not_utf8_are_written_in_base64() -> None:
    written = record_to_json(Record(value=b"\xff"), topic="t", offset=0)
    assert written["value_base64"] == "/w=="
    assert "value" not in written


def test_headers_may_be_a_simple_object() -> None:
    record = record_from_json(b'{"headers": {"a": "1", "b": null}}', number=1)
    assert record.headers == [("a", b"1"), ("b", None)]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (b"hello", "Expecting value"),
        (b"[]", "not an object"),
        (b'{"vaule": "x"}', 'unknown name "vaule"'),
        (b'{"value": 5}', '"value" must be a text'),
        (b'{"value_base64": "?"}', "base64"),
        (b'{"partition": "1"}', "whole number"),
        (b'{"timestamp": true}', "whole number"),
        (b'{"headers": "x"}', "headers"),
        (b'{"headers": [{"value": "x"}]}', '"key" must be a text'),
    ],
)
def test_a_line_that_is_no_record_is_told_by_its_number(line: bytes, message: str) -> None:
    with pytest.raises(RecordJsonError, match=f"line 7 .*{message}"):
        record_from_json(line, number=7)
