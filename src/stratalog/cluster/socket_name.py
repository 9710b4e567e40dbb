"""Names a bound listening socket, so that a broker which starts again knows its dead predecessor.

A machine gives a port to one process at a time. So a broker that has bound a socket knows that the
process which had the socket before is gone, whatever its lease says. An address alone is no such
name: `127.0.0.1:9092` exists on every machine, and an advertised address may be a load balancer's.
The name therefore has the boot of the machine and its network namespace, since containers of one
machine have ports of their own.
"""

from pathlib import Path

_BOOT = Path("/proc/sys/kernel/random/boot_id")
_NETWORK = Path("/proc/self/ns/net")


def socket_name(host: str, port: int) -> str | None:
    """None where the system does not tell, which is everywhere but on Linux."""
    try:
        boot, network = _BOOT.read_text().strip(), _NETWORK.stat().st_ino
    except OSError:
        return None
    return f"{boot}/{network}/{host}:{port}"
