import pickle
from pathlib import Path

import pytest
from Crypto.Cipher import PKCS1_OAEP
from Crypto.Hash import SHA3_512
from Crypto.PublicKey import ECC, RSA
from tests.unit.segment.layout_golden import PRIVATE_PEM, PUBLIC_PEM, key_ring

from stratalog.segment.cipher import SegmentCipher
from stratalog.segment.errors import DataKeyError, KeyFileError, KeyMissingError
from stratalog.segment.json_object import JsonObject
from stratalog.segment.key_ring import EncryptionHeader, KeyRing, parse_encryption


@pytest.fixture(scope="module")
def other_pair() -> RSA.RsaKey:
    return RSA.generate(2048)


@pytest.fixture(scope="module")
def other_files(
    other_pair: RSA.RsaKey, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("keys")
    public, private = folder / "public.pem", folder / "private.pem"
    public.write_bytes(other_pair.public_key().export_key())
    private.write_bytes(other_pair.export_key(pkcs=8))
    return public, private


def written(tmp_path: Path, data: bytes | str) -> Path:
    path = tmp_path / "the-key.pem"
    path.write_bytes(data if isinstance(data, bytes) else data.encode())
    return path


def test_what_one_ring_seals_another_opens() -> None:
    cipher, header = key_ring().new_cipher()
    sealed = cipher.seal(b"records")
    assert key_ring().open(header, "a").unseal(sealed) == b"records"
    assert parse_encryption(JsonObject(header.to_json(), "encryption")) == header


def test_every_segment_has_a_key_of_its_own() -> None:
    ring = key_ring()
    (one, first), (_, second) = ring.new_cipher(), ring.new_cipher()
    assert first.sealed_key != second.sealed_key
    assert first.aad != second.aad
    with pytest.raises(ValueError, match="another key"):
        ring.open(second, "a").unseal(one.seal(b"records"))


def test_after_a_rotation_old_segments_are_read_and_new_ones_use_the_new_pair(
    other_files: tuple[Path, Path],
) -> None:
    cipher, old_header = key_ring().new_cipher()
    sealed = cipher.seal(b"old")
    ring = KeyRing.load(
        {"key1": PUBLIC_PEM, "key2": other_files[0]},
        {"key1": PRIVATE_PEM, "key2": other_files[1]},
        "key2",
    )
    _, new_header = ring.new_cipher()
    assert new_header.key_id == "key2"
    assert ring.open(old_header, "a").unseal(sealed) == b"old"
    assert ring.can_open("key1")
    assert not ring.can_open("key3")


def test_a_writer_needs_no_private_key_and_cannot_read() -> None:
    ring = KeyRing.load({"key1": PUBLIC_PEM}, {}, "key1")
    _, header = ring.new_cipher()
    assert key_ring().open(header, "a")
    with pytest.raises(KeyMissingError, match=r"a/b\.log: its key pair 'key1' has no private key"):
        ring.open(header, "a/b.log")


def test_a_reader_needs_no_public_key_and_cannot_write() -> None:
    _, header = key_ring().new_cipher()
    ring = KeyRing.load({}, {"key1": PRIVATE_PEM}, None)
    assert ring.open(header, "a")
    with pytest.raises(KeyMissingError, match="active key pair"):
        ring.new_cipher()


def test_the_wrong_private_key_is_told_from_a_missing_one(
    other_files: tuple[Path, Path],
) -> None:
    _, header = key_ring().new_cipher()
    ring = KeyRing.load({}, {"key1": other_files[1]}, None)
    with pytest.raises(DataKeyError, match=r"a/b\.rsm-manifest: its data key .* 'key1'"):
        ring.open(header, "a/b.rsm-manifest")


@pytest.mark.parametrize("damage", ["flip", "cut", "empty"])
def test_a_damaged_envelope_names_the_segment(damage: str) -> None:
    _, header = key_ring().new_cipher()
    sealed = header.sealed_key
    changed = {"flip": bytes([sealed[0] ^ 1]) + sealed[1:], "cut": sealed[:-1], "empty": b""}
    damaged = EncryptionHeader(key_id="key1", sealed_key=changed[damage], aad=header.aad)
    with pytest.raises(DataKeyError, match=r"a/b\.rsm-manifest"):
        key_ring().open(damaged, "a/b.rsm-manifest")


def test_an_envelope_with_a_key_of_another_length_is_refused(other_pair: RSA.RsaKey) -> None:
    sealed = PKCS1_OAEP.new(other_pair.public_key(), hashAlgo=SHA3_512).encrypt(bytes(16))
    ring = KeyRing({}, {"k": other_pair})
    with pytest.raises(DataKeyError):
        ring.open(EncryptionHeader(key_id="k", sealed_key=sealed, aad=b""), "a")


def test_the_active_pair_must_be_there() -> None:
    with pytest.raises(KeyMissingError, match="'key2'"):
        KeyRing.load({"key1": PUBLIC_PEM}, {"key1": PRIVATE_PEM}, "key2")


def test_halves_that_do_not_belong_together_are_refused(other_files: tuple[Path, Path]) -> None:
    with pytest.raises(KeyFileError, match="not the two halves") as caught:
        KeyRing.load({"key1": PUBLIC_PEM}, {"key1": other_files[1]}, "key1")
    assert str(PUBLIC_PEM) in str(caught.value)
    assert str(other_files[1]) in str(caught.value)


def test_a_key_below_2048_bits_is_refused(tmp_path: Path) -> None:
    weak = RSA.generate(1024)
    path = written(tmp_path, weak.public_key().export_key())
    with pytest.raises(KeyFileError, match=r"the-key\.pem is an RSA key of 1024 bits"):
        KeyRing.load({"k": path}, {}, "k")


def test_files_that_are_no_usable_keys_are_named_and_never_quoted(
    tmp_path: Path, other_pair: RSA.RsaKey
) -> None:
    pem = PRIVATE_PEM.read_text()
    locked = other_pair.export_key(passphrase="secret", pkcs=8)
    curve = ECC.generate(curve="P-256").export_key(format="PEM")
    for data in ("", "garbage", pem[:800], pem.replace("A", "!"), locked, curve):
        path = written(tmp_path, data)
        with pytest.raises(KeyFileError, match=r"the-key\.pem is not a PEM file") as caught:
            KeyRing.load({}, {"k": path}, None)
        assert caught.value.__cause__ is None
        assert pem.splitlines()[1][:20] not in str(caught.value)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(KeyFileError, match=r"cannot read .*absent\.pem, the public key 'k'"):
        KeyRing.load({"k": tmp_path / "absent.pem"}, {}, "k")


def test_private_and_public_files_are_not_mistaken_for_each_other() -> None:
    with pytest.raises(KeyFileError, match="holds a private key"):
        KeyRing.load({"k": PRIVATE_PEM}, {}, "k")
    with pytest.raises(KeyFileError, match="holds a public key"):
        KeyRing.load({}, {"k": PUBLIC_PEM}, None)


@pytest.mark.parametrize("key_id", ["", "a:b"])
def test_an_id_that_would_not_be_found_again_is_refused(key_id: str) -> None:
    with pytest.raises(KeyFileError, match="must not be empty nor hold a colon"):
        KeyRing.load({key_id: PUBLIC_PEM}, {}, None)


def test_nothing_shows_a_secret() -> None:
    ring = key_ring()
    cipher, _ = ring.new_cipher()
    assert repr(ring) == "<KeyRing public=['key1'] private=['key1'] active='key1'>"
    assert repr(cipher) == "<SegmentCipher>"


def test_secrets_do_not_leave_the_process() -> None:
    ring = key_ring()
    for secret in (ring, SegmentCipher(bytes(32), b"")):
        with pytest.raises(TypeError, match="process"):
            pickle.dumps(secret)


@pytest.mark.parametrize("data_key", ["", "AAAA", ":AAAA", "k:!", "k:A"])
def test_a_data_key_that_makes_no_sense_is_refused(data_key: str) -> None:
    fields = JsonObject({"dataKey": data_key, "aad": "AAAA"}, "encryption")
    with pytest.raises(ValueError, match="data key"):
        parse_encryption(fields)


def test_sealing_twice_gives_different_bytes() -> None:
    cipher = SegmentCipher(bytes(32), b"aad")
    assert cipher.seal(b"same") != cipher.seal(b"same")


@pytest.mark.parametrize("size_bytes", [0, 27])
def test_what_is_too_short_to_be_sealed_is_refused(size_bytes: int) -> None:
    with pytest.raises(ValueError, match="too few"):
        SegmentCipher(bytes(32), b"").unseal(bytes(size_bytes))


def test_nothing_at_all_can_be_sealed() -> None:
    cipher = SegmentCipher(bytes(32), b"")
    sealed = cipher.seal(b"")
    assert len(sealed) == 28
    assert cipher.unseal(sealed) == b""
