"""The requests that one worker of a broker relays to another.

A broker of several workers accepts its clients in any of them. The first worker serves every
request. The others serve requests that move records, and relay the rest. A relay is one connection
over a Unix socket for one connection of a client. It is opened with the client's first request of
that sort. Its first frame introduces the client, and the frames after it are the client's, as they
came. Answers come in the order of the requests. They are taken when the client has taken all
earlier ones, so that a client that reads nothing holds no more memory than without a relay.
"""

import asyncio
import json
from collections.abc import Collection
from pathlib import Path

from stratalog.kafka.server.acceptor import Accepted, Acceptor, Entering, InTurn, Response, Running
from stratalog.kafka.server.session import Session
from stratalog.kafka.server.work import Work, Workplace
from stratalog.kafka.wire.errors import RelayEndedError
from stratalog.kafka.wire.header import peek_api_key
from stratalog.kafka.wire.primitives import INT16, INT32

_INTRODUCTION = -1
"""In the place of the API key. Only a relay may send it."""


class RelayingAcceptor:
    """The acceptor of a worker that relays requests to the first one."""

    def __init__(
        self, own: Acceptor, *, own_keys: Collection[int], socket: Path, workplace: Workplace
    ) -> None:
        self._own = own
        self._own_keys = own_keys
        self._socket = socket
        self._workplace = workplace
        self._relays: dict[int, _Relay] = {}

    def accept(self, frame: bytearray, session: Session) -> Accepted:
        if peek_api_key(frame) in self._own_keys:
            return self._own.accept(frame, session)
        return Entering(self._send(frame, session))

    async def _send(self, frame: bytearray, session: Session) -> InTurn:
        relay = await self._relay(session)
        await relay.send(frame)
        work = Work(self._workplace)
        return InTurn(lambda: relay.answer(work), work.release)

    def _client_left(self, session: Session) -> None:
        self._relays.pop(session.number).close()

    async def _relay(self, session: Session) -> "_Relay":
        relay = self._relays.get(session.number)
        if relay is not None and not relay.has_ended:
            return relay
        if relay is not None:
            relay.close()
        try:
            reader, writer = await asyncio.open_unix_connection(self._socket)
        except OSError as error:
            raise RelayEndedError(f"the first worker is not there: {error}") from error
        relay = self._relays[session.number] = _Relay(reader, writer)
        session.at_end[self._client_left] = None
        await relay.send(_introduction(session))
        return relay


class _Relay:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    @property
    def has_ended(self) -> bool:
        return self._reader.at_eof() or self._writer.is_closing()

    async def send(self, frame: bytes | bytearray) -> None:
        try:
            self._writer.writelines([INT32.pack(len(frame)), frame])
            await self._writer.drain()
        except (OSError, RuntimeError) as error:
            # uvloop has no `OSError` for a transport that it has closed.
            raise RelayEndedError(f"a request was not relayed: {error}") from error

    async def answer(self, work: Work) -> Response:
        try:
            head = await self._reader.readexactly(INT32.size)
            (size,) = INT32.unpack(head)
            body = await self._reader.readexactly(size)
        except (OSError, asyncio.IncompleteReadError) as error:
            raise RelayEndedError("the first worker has ended the relay") from error
        work.holds(INT32.size + size)
        return [head, body]

    def close(self) -> None:
        self._writer.close()


class RelayedAcceptor:
    """The acceptor of the first worker for the requests that others relay."""

    def __init__(self, own: Acceptor) -> None:
        self._own = own

    def accept(self, frame: bytearray, session: Session) -> Accepted:
        if peek_api_key(frame) != _INTRODUCTION:
            return self._own.accept(frame, session)
        _introduce(frame, session)
        introduced = asyncio.get_running_loop().create_future()
        introduced.set_result(None)
        return Running(introduced, _no_answer, outlives_client=False)


def _no_answer() -> Response:
    return None


def _introduction(session: Session) -> bytes:
    client = {"host": session.client_host, "software": session.software}
    return INT16.pack(_INTRODUCTION) + json.dumps(client).encode()


def _introduce(frame: bytearray, session: Session) -> None:
    client = json.loads(frame[INT16.size :])
    session.client_host, session.software = client["host"], client["software"]
