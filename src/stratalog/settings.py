"""Every setting of a broker, as frozen values. Components are never settings.

A setting's docstring names its trade-off. `docs/settings.md` is generated from this module: run
`make docs` after a change. `settings_source` reads the values (file, environment, flags, units)
and checks the bounds that the types carry here.
"""

from dataclasses import dataclass, field
from typing import Annotated, NamedTuple

KIB = 1024
MIB = 1024 * KIB
GIB = 1024 * MIB
SECOND_MS = 1000
MINUTE_MS = 60 * SECOND_MS
HOUR_MS = 60 * MINUTE_MS
DAY_MS = 24 * HOUR_MS
INT32_MOST = 2**31 - 1
"""Kafka's ids and lengths are signed 32-bit numbers."""


class Bounds(NamedTuple):
    """The smallest and the largest value that makes sense; no largest if None."""

    least: int
    most: int | None = None


class Choices(NamedTuple):
    """The texts that a setting, or each value of a table of texts, may have."""

    texts: tuple[str, ...]


Positive = Annotated[int, Bounds(1)]
NotNegative = Annotated[int, Bounds(0)]
LOG_LEVELS = Choices(("debug", "info", "warning", "error"))


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerSettings:
    listen: str = "127.0.0.1:9092"
    """Where to accept Kafka clients. Port 0 takes any free one."""
    advertise: str | None = None
    """The address that clients connect to, if it differs from the listening one."""
    id: Annotated[int, Bounds(0, INT32_MOST)] | None = None
    """The broker's number. If not set, the control plane assigns the lowest free one."""
    rack: str | None = None
    """The zone of this broker. Clients that state their zone are sent to brokers of that zone."""
    workers: Annotated[int, Bounds(1, 64)] = 1
    """Processes that serve clients at the one address. Each further one is worth a processor of its
    own: it has a block writer, connections of the database and about 270 MiB of memory of its own,
    and makes blocks of its own, so that light traffic costs a put per window and worker. The bounds
    of memory and of connections are divided among them."""
    auto_create_topics: bool = True
    """Create a topic when a client first asks for it."""
    auto_create_limit: Positive = 10_000
    """Topics that this broker creates in an hour because clients asked for them; more are refused.
    It bounds the damage of a client with random topic names, who asks thousands in a second."""
    max_partitions: Positive = 200_000
    """Partitions of all topics of the cluster. No topic is created or grown beyond it. Each costs
    some rows of the control plane for as long as its topic exists."""
    default_partitions: Positive = 1
    """Partitions of a topic that was created without a number."""
    max_request_bytes: Annotated[int, Bounds(1, INT32_MOST)] = 100 * MIB
    """A longer request closes its connection: it is more likely garbage than data."""
    max_decompressed_bytes: Annotated[int, Bounds(1, 128 * MIB)] = 128 * MIB
    """The records of a produced batch, decompressed. Larger batches are refused: nothing reads
    them. Two requests are decompressed at a time, one batch of each after the other; a lower bound
    saves that memory."""
    max_decompression_ratio: Positive = 1000
    """The bytes that one compressed byte of a produced batch may become, where the records exceed
    4 MiB. A lower ratio limits the work that a small hostile request can cause; too low a one
    refuses records that repeat themselves."""
    max_control_request_bytes: Annotated[int, Bounds(1, INT32_MOST)] = 8 * MIB
    """The same for requests other than Produce, which carry no records."""
    max_request_entries: Positive = 20_000
    """Topics, partitions, groups and other entries of one request. One with more is refused, or its
    connection closed where the response has no room for the reason. Each takes memory, and time in
    which other large requests wait."""
    request_memory_bytes: Annotated[int, Bounds(1 * MIB)] = 128 * MIB
    """Memory for requests without the records that they carry: half of it for requests other than
    Produce as they arrive, a quarter for all requests while they are worked on, and a quarter for
    the partitions of fetch sessions."""
    answer_memory_bytes: Annotated[int, Bounds(1 * MIB)] = 256 * MIB
    """Memory for answers that are made or that clients have not taken yet. While it runs short,
    fetches get smaller answers, and clients that take theirs too slowly lose their connection."""
    max_pipelined_requests: Positive = 1000
    """Requests of one connection that are worked on at once; more wait in the socket."""
    max_connections: Positive = 10_000
    """Connections of clients. More are closed at once. Each costs some 20 KiB and a descriptor;
    `stratalog up` raises its limit of open files for them, and keeps 512 descriptors for files and
    the database whatever is set here."""
    max_connections_per_address: Positive = 5000
    """Connections from one address, or from one IPv6 network of 64 bits. Lower keeps one client
    from taking all; it must be enough for all clients behind one proxy."""
    connections_max_idle_ms: Positive = 10 * MINUTE_MS
    """How long a connection stays open on which nothing moves, as Kafka's
    `connections.max.idle.ms`. Clients connect again when they need to."""
    lease_ms: Positive = 10 * SECOND_MS
    """How long a silent broker counts as alive. A shorter lease finds dead brokers sooner and asks
    the control plane more often."""
    shutdown_timeout_ms: NotNegative = 30 * SECOND_MS
    """How long a stopping broker waits for its last blocks to be committed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StorageSettings:
    objects: str = "file:stratalog-data/objects"
    """The object store: file:, s3:, gs:, az: or memory:."""
    control: str = "sqlite:stratalog-data/control.db"
    """The control plane: sqlite:<path> or postgresql://<user>@<host>/<database>."""
    control_connections: Positive = 10
    """The most connections that a process opens to PostgreSQL. It opens them as it needs them, and
    a busy broker needs all. All brokers, pipelines and Spark drivers together have to stay below
    the server's `max_connections`; fewer make commits and reads wait for each other."""
    object_options: dict[str, str] = field(default_factory=dict)
    """Options of the object store's client, such as endpoint, region, server-side encryption."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockSettings:
    window_ms: NotNegative = 250
    """The longest that a block collects batches. Of many producers that write little each it is
    most of their latency; a shorter window makes more, smaller objects, and every object costs a
    request."""
    max_bytes: Positive = 8 * MIB
    """A block that reaches this size is sealed before its window ends."""
    requests_per_second: NotNegative | None = None
    """The budget for blocks that are sealed before they are full or their window ends, because no
    other request is expected in them. Each put that a window makes takes from it, too. More answer
    a lone producer sooner, on a store that bills requests at a price: at S3's list price, each
    request in every second of a month is 13 dollars. If not set, there is no limit for a folder,
    and 4 for any other store, which is as many as windows of 250 ms make by themselves. Blocks of
    1 MiB and more need no budget. 0 seals no block before its window ends unless it is full."""
    parallel_uploads: Positive = 8
    """Blocks being uploaded at once."""
    max_inflight_bytes: Positive = 128 * MIB
    """Bytes of produce requests in memory. Beyond it, the broker stops reading from producers."""
    retry_ms: Positive = 30 * SECOND_MS
    """How long the upload or commit of a block is waited for and retried before its producers get a
    retriable error."""
    witness_ms: NotNegative = 5 * SECOND_MS
    """A commit that no later block names within this time is named by a small object, so that a
    broker that starts notices if the control plane has lost it. It costs one put after each burst
    of writes, at most one per interval and broker. A shorter interval leaves less that a crash at
    the wrong moment hides; 0 switches it off."""
    cache_bytes: NotNegative = 128 * MIB
    """Memory for freshly written blocks, from which consumers at the head are served."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchSettings:
    max_bytes: Positive = 16 * MIB
    """The largest answer to one fetch, even if the client asks for more. Each connection may hold
    that much memory; more than the default was no faster."""
    sessions: NotNegative = 1000
    """Slots for fetch sessions, as Kafka's `max.incremental.fetch.session.cache.slots`. A consumer
    with a session names its partitions once, and not with every fetch. Java's have one per broker
    that they read from; beyond the slots, they name all partitions. Each partition of a session
    takes 1 KiB of a quarter of `broker.request_memory_bytes`. 0 switches sessions off."""
    poll_ms: Positive = 1000
    """How often waiting fetches look for writes of other brokers whose hints were lost. A consumer
    that waits may learn of a new start of its partition that much later, too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteSettings:
    objects: str | None = None
    """Where segments are kept, an address as in `storage.objects`; the same store if not set."""
    prefix: str = "segments/"
    """The start of every segment's keys. Kafka's plugin calls it `key.prefix`."""
    chunk_bytes: Annotated[int, Bounds(1, 2**30 - 1)] = 4 * MIB
    """The piece of a segment that is compressed, encrypted and read as one. Smaller ones let a
    single record be read for fewer bytes; larger ones compress better."""
    compression: bool = False
    """Compress the chunks of new segments with zstd. It pays for topics whose producers do not."""
    encryption_key: str | None = None
    """The key pair, by its name in `public_keys`, that new segments are encrypted for. Not set,
    they are not encrypted."""
    public_keys: dict[str, str] = field(default_factory=dict)
    """PEM files of RSA public keys, by the names that segments call them."""
    private_keys: dict[str, str] = field(default_factory=dict)
    """PEM files of RSA private keys, by name. Old ones stay here for as long as segments that
    were encrypted for them."""
    reads: bool = True
    """Serve reads of segments. Switched off, such reads are refused; blocks are served still."""
    index_cache_bytes: NotNegative = 32 * MIB
    """Memory for the indexes of segments: with them a read costs one request, else two."""
    chunk_cache_bytes: NotNegative = 64 * MIB
    """Memory for chunks of segments, read ahead and shared by consumers of the same records. A
    chunk that is compressed or encrypted and finds no place here is fetched and decoded whole for
    each step of its reader, so have room for two of `chunk_bytes` for each consumer of such
    segments. In adopted ones chunks have the size that was set in Kafka."""
    read_ahead_bytes: NotNegative = 16 * MIB
    """How far a consumer that reads on is read ahead for. 0 switches it off."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TieringSettings:
    enabled: bool = True
    """Run the pipeline beside this broker. Any number of brokers may: they share the work."""
    age_ms: NotNegative = HOUR_MS
    """How long ago records must have been committed before they are moved into segments, in
    topics without a `local.retention.ms` of their own."""
    splitter_interval_ms: Positive = MINUTE_MS
    """How often partitions with many small pieces are looked for."""
    splitter_max_files_per_run: Positive = 1000
    """The most blocks and split files that one run re-sorts. A broker with a window of 250 ms
    writes up to 240 blocks a minute, so that ten per run would never catch up; a thousand are more
    than a laptop needs, and bound the cost of a run."""
    splitter_claim_duration_ms: Positive = 5 * MINUTE_MS
    """How long a run that went silent keeps other runs from its partitions. A live run renews its
    claims."""
    merger_interval_ms: Positive = 5 * MINUTE_MS
    """How often partitions with enough for a segment are looked for."""
    min_segment_bytes: Positive = 64 * MIB
    """Partitions with less than this wait for more, until their records are older than the
    topic's `segment.ms`. Smaller is sooner in segments, and makes more of them: with 1 MiB, a
    partition that gets a megabyte every few minutes would have hundreds of segments a day, each
    with three objects, their requests and a row of the control plane."""
    max_segment_bytes: Annotated[int, Bounds(1, INT32_MOST)] = GIB
    """No segment is made larger, whatever the topic's `segment.bytes`."""
    max_batches_per_run: Positive = 1_000_000
    """The most rows that one run converts, of all partitions together. A thousand would be the rows
    of some fifteen thin partitions. A million are the rows of about 14,000 partitions that have
    just exceeded `tiering.max_rows`, with the rows that arrive until the next run. With more such
    partitions a run takes the oldest, and the others wait with more rows than the bound: raise this
    with their number. The driver holds that many rows in memory."""
    max_bytes_per_run: Positive = 64 * GIB
    """The most bytes that one run reads. It bounds the cost of a run."""
    max_rows: Positive = 64
    """Partitions with more pieces than this, and more than one per MiB, are re-sorted."""
    split_file_bytes: Positive = 256 * MIB
    """The size of a split file. A task holds one in memory while it sorts."""
    task_bytes: Positive = 256 * MIB
    """The bytes that a Spark task should move. Smaller tasks cost more to start than they do."""
    task_bytes_per_second: NotNegative = 64 * MIB
    """The speed limit of each Spark task beside a broker, so that producers do not wait for a disk
    that the pipeline keeps busy; 0 is no limit. There are as many tasks at a time as cores.
    `stratalog pipeline run` has this limit only with `--gently`."""
    max_attempts: Positive = 5
    """A partition whose conversion failed so often in a row is parked."""
    executor_wait_ms: Positive = 10 * MINUTE_MS
    """How long a run waits while Spark starts none of its tasks, because a cluster has no executor
    to give. Then it gives its partitions back and fails. Longer suits clusters that start machines
    on demand; shorter lets another run, elsewhere, have the partitions sooner."""
    idle_ms: NotNegative = 10 * MINUTE_MS
    """How long Spark stays up without work beside a broker."""
    master: str = "local[*]"
    """Where the jobs run: local[*], spark://host:port, or sc://host:port for Spark Connect."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScanSettings:
    lease_ms: Positive = 6 * HOUR_MS
    """How long a scan may read the data that it planned to read, even if retention or a deletion
    removes it meanwhile. Deleted objects take room for that much longer."""
    split_bytes: Positive = 64 * MIB
    """The bytes that one task of a scan reads. Smaller tasks spread a hot partition over more
    cores, and each task costs a start."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupsSettings:
    initial_rebalance_delay_ms: NotNegative = 3 * SECOND_MS
    """How long a group that has no members yet waits for more after the first has come. Longer
    spares members that start together several rebalances; shorter lets the first begin sooner."""
    min_session_timeout_ms: Positive = 6 * SECOND_MS
    """The shortest session timeout that a member may ask for. Short ones find dead members
    sooner, and take slow ones for dead."""
    max_session_timeout_ms: Positive = 30 * MINUTE_MS
    """The longest session timeout that a member may ask for."""
    max_size: Annotated[int, Bounds(1, INT32_MOST)] = 10_000
    """Members that a group may have. The coordinator keeps all of them in memory."""
    max_member_bytes: Positive = MIB
    """Bytes of one member's subscription, and of its assignment. Members of Kafka Streams have some
    hundred KiB."""
    max_groups: Positive = 100_000
    """Consumer groups of the cluster. Any client can make one by joining it or by committing an
    offset, and each is a row or more of the control plane."""
    new_groups_per_hour: Positive = 10_000
    """Groups that the clients of one address may make in an hour through one broker. More are
    refused; groups that are there go on. Clients behind one gateway share an address."""
    max_state_bytes: Annotated[int, Bounds(1 * MIB)] = 128 * MIB
    """Memory of the members of all groups that one broker coordinates: their subscriptions,
    assignments and texts, as estimated. New members are refused when three quarters are in use; the
    rest is for assignments."""
    consumer_session_timeout_ms: Positive = 45 * SECOND_MS
    """How long a silent member of a group with `group.protocol=consumer` keeps its partitions.
    Shorter finds dead members sooner, and takes slow ones for dead."""
    consumer_heartbeat_interval_ms: Annotated[int, Bounds(1, INT32_MOST)] = 5 * SECOND_MS
    """The interval of heartbeats in groups with `group.protocol=consumer`. Each step of a rebalance
    waits for one; more of them cost the coordinator more."""
    consumer_topics_poll_ms: Positive = 2 * SECOND_MS
    """How often such a group looks for topics that were created, deleted or grown, at the most.
    Changes through its own broker are noticed with the next heartbeat."""
    offsets_retention_ms: Positive = 7 * DAY_MS
    """How long committed offsets are kept after a group has lost its last member, or, of a group
    without members, after the commit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JanitorSettings:
    interval_ms: NotNegative = 60 * SECOND_MS
    """How often retention, deletion and the sweep run. 0 switches them off on this broker."""
    grace_ms: NotNegative = 60 * SECOND_MS
    """How long an object outlives its last reference, for readers that still hold it."""
    backup_window_ms: NotNegative = DAY_MS
    """How long, after the grace, objects and segments are kept that merges, splits and rewrites
    have replaced, or that retention and deletes have freed. A backup of the control plane that is
    younger than this finds everything it names. The price is space: records that were merged lie in
    the store twice for so long, expired ones remain, and the control plane has a row more for each
    block. With 0 no backup is of use that is older than the last run of the pipeline."""
    retention_window_ms: Annotated[int, Bounds(0, 30 * DAY_MS)] = DAY_MS
    """How long the limit before still counts after `retention.ms` or `retention.bytes` was lowered.
    Longer forgives later; until then the records take room. 0 lets records go at once."""
    deleted_topic_window_ms: NotNegative = DAY_MS
    """How long a deleted topic can be undeleted. Longer forgives later; until then its records take
    room, and `stratalog topic purge` frees it sooner. 0 removes topics with the janitor's next
    run."""
    orphan_age_ms: NotNegative = HOUR_MS
    """How old an object without a row must be before the sweeper deletes it."""
    unfinished_age_ms: NotNegative = DAY_MS
    """How old a segment that never became a part of its partition must be before it is removed.
    Longer than any upload may take."""
    answers_ms: NotNegative = HOUR_MS
    """How long the answers of a commit are kept for a broker in doubt about it."""
    producer_expiry_ms: NotNegative = 24 * HOUR_MS
    """How long the sequences of an idle producer are remembered, as Kafka's
    `producer.id.expiration.ms`. A repeat that comes later is not noticed."""
    chunk_rows: Positive = 2000
    """The most rows that one deleting transaction removes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogSettings:
    level: Annotated[str, LOG_LEVELS] = "info"
    """The least level that is logged: debug, info, warning or error. At warning, deletions that
    clients asked for still leave a line; sweeps, refused requests and closed connections do not."""
    format: Annotated[str, Choices(("text", "json"))] = "text"
    """One line of text per event, for people, or one JSON object, for a collector of logs."""
    levels: Annotated[dict[str, str], LOG_LEVELS] = field(default_factory=dict)
    """Levels of single rooms, such as `janitor = "debug"` or `"kafka.server" = "warning"`. Lines
    begin with the names of rooms. Debug of a busy room slows a broker down."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    broker: BrokerSettings = field(default_factory=BrokerSettings)
    storage: StorageSettings = field(default_factory=StorageSettings)
    block: BlockSettings = field(default_factory=BlockSettings)
    fetch: FetchSettings = field(default_factory=FetchSettings)
    remote: RemoteSettings = field(default_factory=RemoteSettings)
    tiering: TieringSettings = field(default_factory=TieringSettings)
    scan: ScanSettings = field(default_factory=ScanSettings)
    groups: GroupsSettings = field(default_factory=GroupsSettings)
    janitor: JanitorSettings = field(default_factory=JanitorSettings)
    log: LogSettings = field(default_factory=LogSettings)
    given: frozenset[str] = field(default=frozenset(), compare=False)
    """The paths of the settings that a file, the environment or a flag gave. No setting itself."""
    topic: dict[str, str] = field(default_factory=dict)
    """Defaults of topic configs, by their Kafka names. Durations and sizes take units, as settings
    do: `"retention.ms" = "7d"`, `"segment.bytes" = "512MiB"`."""


CLUSTER_WIDE = (
    "topic.retention.ms",
    "topic.retention.bytes",
    "block.window_ms",
    "tiering.age_ms",
    "groups.offsets_retention_ms",
    "janitor.grace_ms",
    "janitor.backup_window_ms",
    "janitor.retention_window_ms",
    "janitor.deleted_topic_window_ms",
    "janitor.orphan_age_ms",
    "janitor.unfinished_age_ms",
    "janitor.answers_ms",
    "janitor.producer_expiry_ms",
)
"""Settings that all brokers share, because any of them deletes for the whole cluster. The control
plane keeps the values; the first broker writes its own."""
