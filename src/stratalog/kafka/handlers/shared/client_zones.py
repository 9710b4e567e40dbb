"""Which zone a client is in, as far as it tells.

Consumers of Kafka's own protocol say it in Fetch (`client.rack`). Producers, and Metadata, have no
field for it, so a client may carry it in its client id, among other parts that are set apart by
commas: `orders-service,zone=eu-central-1a`. `diskless_az=` is another spelling of the same.
"""

_NAMES = frozenset({"zone", "diskless_az"})


def zone_of_client(client_id: str | None) -> str | None:
    for part in (client_id or "").split(","):
        name, equals, value = part.partition("=")
        if equals and name.strip() in _NAMES and value.strip():
            return value.strip()
    return None
