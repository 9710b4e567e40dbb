"""The range assignor: cuts each topic into even ranges, one per subscriber, in one order of
members.

Topics with the same subscribers and the same number of partitions are therefore cut alike: the
member that has partition 3 of one topic has partition 3 of the other, as joins over both topics
need it. The price is that the first members get the odd partition of every topic.
"""

from stratalog.groups.consumer.assignment import AssignmentTask
from stratalog.groups.consumer.model import Partitions
from stratalog.ids import TopicId, TopicPartition


def assign_ranges(task: AssignmentTask) -> dict[str, Partitions]:
    given: dict[str, set[TopicPartition]] = {member_id: set() for member_id in task.members}
    for topic_id in task.subscribed:
        for member_id, partitions in _cut(task, topic_id):
            given[member_id].update(partitions)
    return {member_id: frozenset(partitions) for member_id, partitions in given.items()}


def _cut(task: AssignmentTask, topic_id: TopicId) -> list[tuple[str, list[TopicPartition]]]:
    partitions = list(task.partitions_of(topic_id))
    subscribers = _in_order(task, topic_id)
    least, odd = divmod(len(partitions), len(subscribers))
    ranges = []
    start = 0
    for place, member_id in enumerate(subscribers):
        end = start + least + (place < odd)
        ranges.append((member_id, partitions[start:end]))
        start = end
    return ranges


def _in_order(task: AssignmentTask, topic_id: TopicId) -> list[str]:
    """Return the subscribers in the order of their ranges. Static members are sorted by instance
    id, before the others, because their ranges must not depend on member ids, which change with a
    restart."""

    def place(member_id: str) -> tuple[bool, str]:
        instance_id = task.members[member_id].instance_id
        return (instance_id is None, instance_id or member_id)

    subscribers = (key for key, member in task.members.items() if topic_id in member.topic_ids)
    return sorted(subscribers, key=place)
