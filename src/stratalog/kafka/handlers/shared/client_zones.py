"""The zone that a client names.

Consumers name their zone in Fetch (`client.rack`). Produce and Metadata requests have no field for
a zone, so a client may put it into its client id, among other parts that are separated by commas:
`orders-service,zone=eu-central-1a`. `diskless_az=` is another spelling of `zone=`.
"""

_NAMES = frozenset({"zone", "diskless_az"})


def zone_of_client(client_id: str | None) -> str | None:
    for part in (client_id or "").split(","):
        name, equals, value = part.partition("=")
        if equals and name.strip() in _NAMES and value.strip():
            return value.strip()
    return None
