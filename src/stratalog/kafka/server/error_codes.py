"""The one table from our errors to Kafka's error codes."""

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
    UnknownTopicIdError,
)
from stratalog.batch.errors import (
    BatchDamagedError,
    BatchTooLargeError,
    CrcMismatchError,
    InvalidBatchError,
    InvalidTimestampError,
    UnsupportedCodecError,
)
from stratalog.control.groups.errors import NotCoordinatorError
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
    GroupFullError,
    GroupNotEmptyError,
    GroupNotFoundError,
    IllegalGenerationError,
    InconsistentProtocolError,
    InvalidGroupIdError,
    MemberIdRequiredError,
    MetadataTooLargeError,
    RebalanceInProgressError,
    SessionTimeoutError,
    SubscribedError,
    UnknownMemberError,
)
from stratalog.kafka.wire.errors import InvalidRecordsError, RequiredAcksError
from stratalog.objects.open import BadStoreError
from stratalog.objects.store import StoreAccessError
from stratalog.segment.errors import KeyMissingError
from stratalog.topic.errors import (
    FencedProducerError,
    OutOfOrderSequenceError,
    ReadOnlyTopicError,
    RemoteReadsOffError,
    TransactionsUnsupportedError,
)
from stratalog.topic_configs import TopicConfigError

_CODES: dict[type[StratalogError], ErrorCode] = {
    # What the caller does about it decides, unless something more particular is known below.
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
    # Rights.
    TopicAccessDeniedError: ErrorCode.topic_authorization_failed,
    GroupAccessDeniedError: ErrorCode.group_authorization_failed,
    ClusterAccessDeniedError: ErrorCode.cluster_authorization_failed,
    # Record batches. A wrong checksum may be the network's doing, so it is worth another try;
    # everything else would come again as it is.
    CrcMismatchError: ErrorCode.corrupt_message,
    BatchDamagedError: ErrorCode.invalid_record,
    InvalidBatchError: ErrorCode.invalid_record,
    InvalidRecordsError: ErrorCode.invalid_record,
    UnsupportedCodecError: ErrorCode.unsupported_compression_type,
    BatchTooLargeError: ErrorCode.message_too_large,
    InvalidTimestampError: ErrorCode.invalid_timestamp,
    # Producers.
    RequiredAcksError: ErrorCode.invalid_required_acks,
    OutOfOrderSequenceError: ErrorCode.out_of_order_sequence_number,
    FencedProducerError: ErrorCode.invalid_producer_epoch,
    # Of the codes that every client gives up on at once, this is the one for transactions;
    # the message says what it is about.
    TransactionsUnsupportedError: ErrorCode.transactional_id_authorization_failed,
    # No client repeats this one, and it carries our message: the topic stays read-only until
    # somebody migrates it.
    ReadOnlyTopicError: ErrorCode.policy_violation,
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
    GroupNotEmptyError: ErrorCode.non_empty_group,
    GroupNotFoundError: ErrorCode.group_id_not_found,
    SubscribedError: ErrorCode.group_subscribed_to_topic,
    FencedMemberEpochError: ErrorCode.fenced_member_epoch,
    StaleMemberEpochError: ErrorCode.stale_member_epoch,
    OldCommitError: ErrorCode.unsupported_version,
    UnreleasedInstanceError: ErrorCode.unreleased_instance_id,
    UnsupportedAssignorError: ErrorCode.unsupported_assignor,
    InvalidPatternError: ErrorCode.invalid_regular_expression,
    MetadataTooLargeError: ErrorCode.offset_metadata_too_large,
    # The only kind of code after which every client waits and asks for the same offset again:
    # others make it skip records, reset its position or give up, although all records are there.
    RemoteReadsOffError: ErrorCode.kafka_storage_error,
    KeyMissingError: ErrorCode.kafka_storage_error,
    # Our own trouble with the store, though it was the call that was refused.
    StoreAccessError: ErrorCode.kafka_storage_error,
    BadStoreError: ErrorCode.kafka_storage_error,
    BarredObjectError: ErrorCode.kafka_storage_error,
}


def code_of(error: BaseException) -> ErrorCode:
    """The code of the most particular class that has one."""
    for kind in type(error).__mro__:
        if kind in _CODES:
            return _CODES[kind]
    return ErrorCode.unknown_server_error


def fetch_code_of(error: StratalogError) -> ErrorCode:
    """Consumers know CORRUPT_MESSAGE only, whatever it is that is wrong with stored bytes."""
    if isinstance(error, DamagedError):
        return ErrorCode.corrupt_message
    return code_of(error)


def group_code_of(error: BaseException) -> ErrorCode:
    """Members of groups know no trouble with storage: they wait and look for the coordinator."""
    code = code_of(error)
    if code in (ErrorCode.kafka_storage_error, ErrorCode.request_timed_out):
        return ErrorCode.coordinator_not_available
    return code


def message_of(error: BaseException) -> str:
    """What clients are told. An error that is not ours may say things that are not theirs."""
    return str(error) if isinstance(error, StratalogError) else "internal error, see the log"
