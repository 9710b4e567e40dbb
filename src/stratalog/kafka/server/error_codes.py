"""The table from Stratalog's errors to Kafka's error codes."""

from kio.schema.errors import ErrorCode

from stratalog.admin.errors import (
    ClusterAccessDeniedError,
    ElectionNotNeededError,
    GroupAccessDeniedError,
    InvalidTopicNameError,
    NoReassignmentError,
    PartitionAssignmentError,
    ReplicationFactorError,
    TopicAccessDeniedError,
    TopicLimitError,
    UnknownTopicIdError,
)
from stratalog.batch.errors import (
    BatchDamagedError,
    BatchTooLargeError,
    CrcMismatchError,
    DecompressedTooLargeError,
    InvalidBatchError,
    InvalidTimestampError,
    UnsupportedCodecError,
)
from stratalog.control.brokers.errors import BrokerNotRegisteredError
from stratalog.control.groups.errors import NotCoordinatorError, TooManyGroupsError
from stratalog.control.log.errors import OffsetOutOfRangeError
from stratalog.control.objects.errors import BarredObjectError
from stratalog.control.topics.errors import PartitionCountError, TopicExistsError, UnknownTopicError
from stratalog.errors import (
    CallError,
    DamagedError,
    OutcomeUnknownError,
    RetriableError,
    StaleError,
    StratalogError,
    TopicConfigError,
)
from stratalog.groups.consumer.errors import (
    FencedMemberEpochError,
    InvalidPatternError,
    OldCommitError,
    StaleMemberEpochError,
    UnreleasedInstanceError,
    UnsupportedAssignorError,
)
from stratalog.groups.errors import (
    FencedInstanceError,
    GroupConfigError,
    GroupFullError,
    GroupMemoryError,
    GroupNotEmptyError,
    GroupNotFoundError,
    IllegalGenerationError,
    InconsistentProtocolError,
    InvalidGroupIdError,
    MemberIdRequiredError,
    MetadataTooLargeError,
    NewGroupsError,
    RebalanceInProgressError,
    SessionTimeoutError,
    SubscribedError,
    UnknownMemberError,
)
from stratalog.kafka.fetches.errors import (
    FetchSessionEpochError,
    FetchSessionNotFoundError,
    FetchSessionTopicIdError,
)
from stratalog.kafka.wire.errors import InvalidRecordsError, RequiredAcksError
from stratalog.objects.errors import BadStoreError, StoreAccessError
from stratalog.segment.errors import KeyMissingError
from stratalog.topic.errors import (
    FencedProducerError,
    OutOfOrderSequenceError,
    ReadOnlyTopicError,
    RemoteReadsOffError,
    TransactionsUnsupportedError,
)

_CODES: dict[type[StratalogError], ErrorCode] = {
    # The category decides, unless a more particular error follows below.
    RetriableError: ErrorCode.kafka_storage_error,
    StaleError: ErrorCode.kafka_storage_error,
    CallError: ErrorCode.invalid_request,
    DamagedError: ErrorCode.corrupt_message,
    OutcomeUnknownError: ErrorCode.request_timed_out,
    # Topics and partitions.
    UnknownTopicError: ErrorCode.unknown_topic_or_partition,
    UnknownTopicIdError: ErrorCode.unknown_topic_id,
    TopicExistsError: ErrorCode.topic_already_exists,
    InvalidTopicNameError: ErrorCode.invalid_topic_exception,
    TopicConfigError: ErrorCode.invalid_config,
    PartitionCountError: ErrorCode.invalid_partitions,
    PartitionAssignmentError: ErrorCode.invalid_replica_assignment,
    ReplicationFactorError: ErrorCode.invalid_replication_factor,
    NoReassignmentError: ErrorCode.no_reassignment_in_progress,
    ElectionNotNeededError: ErrorCode.election_not_needed,
    OffsetOutOfRangeError: ErrorCode.offset_out_of_range,
    # Fetch sessions.
    FetchSessionNotFoundError: ErrorCode.fetch_session_id_not_found,
    FetchSessionEpochError: ErrorCode.invalid_fetch_session_epoch,
    FetchSessionTopicIdError: ErrorCode.fetch_session_topic_id_error,
    # Rights.
    TopicAccessDeniedError: ErrorCode.topic_authorization_failed,
    GroupAccessDeniedError: ErrorCode.group_authorization_failed,
    ClusterAccessDeniedError: ErrorCode.cluster_authorization_failed,
    # Record batches. The network may cause a wrong checksum, so the client should try again. Every
    # other mistake would come again as it is.
    CrcMismatchError: ErrorCode.corrupt_message,
    BatchDamagedError: ErrorCode.invalid_record,
    InvalidBatchError: ErrorCode.invalid_record,
    InvalidRecordsError: ErrorCode.invalid_record,
    UnsupportedCodecError: ErrorCode.unsupported_compression_type,
    BatchTooLargeError: ErrorCode.message_too_large,
    # Java's producer splits the batch and sends the halves.
    DecompressedTooLargeError: ErrorCode.message_too_large,
    InvalidTimestampError: ErrorCode.invalid_timestamp,
    # Producers.
    RequiredAcksError: ErrorCode.invalid_required_acks,
    OutOfOrderSequenceError: ErrorCode.out_of_order_sequence_number,
    FencedProducerError: ErrorCode.invalid_producer_epoch,
    # Every client gives up on this code at once, and it concerns transactions. The message has the
    # true reason.
    GroupConfigError: ErrorCode.invalid_config,
    TransactionsUnsupportedError: ErrorCode.unsupported_version,
    # No client repeats a request after this code, and the response carries the message: the topic
    # stays read-only until it is migrated.
    ReadOnlyTopicError: ErrorCode.policy_violation,
    TopicLimitError: ErrorCode.policy_violation,
    TooManyGroupsError: ErrorCode.policy_violation,
    NewGroupsError: ErrorCode.policy_violation,
    # Groups.
    NotCoordinatorError: ErrorCode.not_coordinator,
    InvalidGroupIdError: ErrorCode.invalid_group_id,
    UnknownMemberError: ErrorCode.unknown_member_id,
    MemberIdRequiredError: ErrorCode.member_id_required,
    FencedInstanceError: ErrorCode.fenced_instance_id,
    IllegalGenerationError: ErrorCode.illegal_generation,
    RebalanceInProgressError: ErrorCode.rebalance_in_progress,
    InconsistentProtocolError: ErrorCode.inconsistent_group_protocol,
    SessionTimeoutError: ErrorCode.invalid_session_timeout,
    GroupFullError: ErrorCode.group_max_size_reached,
    GroupMemoryError: ErrorCode.group_max_size_reached,
    GroupNotEmptyError: ErrorCode.non_empty_group,
    GroupNotFoundError: ErrorCode.group_id_not_found,
    SubscribedError: ErrorCode.group_subscribed_to_topic,
    FencedMemberEpochError: ErrorCode.fenced_member_epoch,
    StaleMemberEpochError: ErrorCode.stale_member_epoch,
    OldCommitError: ErrorCode.unsupported_version,
    UnreleasedInstanceError: ErrorCode.unreleased_instance_id,
    UnsupportedAssignorError: ErrorCode.unsupported_assignor,
    BrokerNotRegisteredError: ErrorCode.broker_id_not_registered,
    InvalidPatternError: ErrorCode.invalid_regular_expression,
    MetadataTooLargeError: ErrorCode.offset_metadata_too_large,
    # Only after this code does every client wait and ask for the same offset again. After others
    # a client skips records, resets its position or gives up, although all records are there.
    RemoteReadsOffError: ErrorCode.kafka_storage_error,
    KeyMissingError: ErrorCode.kafka_storage_error,
    # The store refused the call of this broker, not of the client, whose request is in order.
    StoreAccessError: ErrorCode.kafka_storage_error,
    BadStoreError: ErrorCode.kafka_storage_error,
    BarredObjectError: ErrorCode.kafka_storage_error,
}


def code_of(error: BaseException) -> ErrorCode:
    """Return the code of the most particular class that has one."""
    for kind in type(error).__mro__:
        if kind in _CODES:
            return _CODES[kind]
    return ErrorCode.unknown_server_error


def fetch_code_of(error: StratalogError) -> ErrorCode:
    """Consumers know no other code for damaged bytes than CORRUPT_MESSAGE."""
    if isinstance(error, DamagedError):
        return ErrorCode.corrupt_message
    return code_of(error)


def group_code_of(error: BaseException) -> ErrorCode:
    """Members of groups know no codes of storage. This one makes them wait and look for the
    coordinator."""
    code = code_of(error)
    if code in (ErrorCode.kafka_storage_error, ErrorCode.request_timed_out):
        return ErrorCode.coordinator_not_available
    return code


def message_of(error: BaseException) -> str:
    """Return the message for clients. An unexpected error may contain secrets."""
    return str(error) if isinstance(error, StratalogError) else "internal error, see the log"
