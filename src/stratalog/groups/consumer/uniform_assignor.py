"""The uniform assignor: even numbers of partitions, and as few moves as possible.

If all members subscribe to the same topics, loads differ by one at the most, and no partition moves
without need. If they do not, each free partition goes to its least loaded subscriber. Partitions
are then moved one by one for as long as a move evens out two members.
"""

from collections.abc import Iterator

from stratalog.groups.consumer.assignment import AssignmentTask
from stratalog.groups.consumer.model import Partitions
from stratalog.ids import TopicId, TopicPartition


def assign_uniformly(task: AssignmentTask) -> dict[str, Partitions]:
    alike = len({member.topic_ids for member in task.members.values()}) == 1
    given = _by_quota(task) if alike else _by_load(task)
    return {member_id: frozenset(partitions) for member_id, partitions in given.items()}


def _by_quota(task: AssignmentTask) -> dict[str, set[TopicPartition]]:
    """Let each member keep partitions up to its quota, and fill the quotas up with the rest.

    The members that have most get the quotas that are one higher, so that they lose least.
    """
    partitions = _all_partitions(task)
    least, odd = divmod(len(partitions), len(task.members))
    kept = {key: sorted(task.may_keep(member)) for key, member in task.members.items()}
    by_load = sorted(kept, key=lambda member_id: (-len(kept[member_id]), member_id))
    quotas = {member_id: least + (place < odd) for place, member_id in enumerate(by_load)}
    given = {member_id: set(kept[member_id][: quotas[member_id]]) for member_id in task.members}
    free = iter(_without(partitions, given))
    for member_id in sorted(given):
        missing = quotas[member_id] - len(given[member_id])
        given[member_id].update(next(free) for _ in range(missing))
    return given


def _by_load(task: AssignmentTask) -> dict[str, set[TopicPartition]]:
    subscribers = _subscribers(task)
    given = {key: set(task.may_keep(member)) for key, member in task.members.items()}
    free = _without(_all_partitions(task), given)
    # Partitions with few subscribers come first, while these subscribers have room.
    free.sort(key=lambda each: (len(subscribers[each.topic_id]), each))
    for partition in free:
        given[_least_loaded(given, subscribers[partition.topic_id])].add(partition)
    while _even_out(given, subscribers):
        pass
    return given


def _even_out(given: dict[str, set[TopicPartition]], subscribers: dict[TopicId, list[str]]) -> bool:
    """Move partitions from members with more to members with fewer. Return whether any moved.

    A move is made only if the loads differ by two or more. So the sum of the squared loads falls
    with each move, and repeated calls come to an end.
    """
    moved = False
    for giver in sorted(given, key=lambda member_id: (-len(given[member_id]), member_id)):
        for partition in sorted(given[giver], reverse=True):
            taker = _least_loaded(given, subscribers[partition.topic_id])
            if len(given[giver]) - len(given[taker]) >= 2:
                given[giver].remove(partition)
                given[taker].add(partition)
                moved = True
    return moved


def _least_loaded(given: dict[str, set[TopicPartition]], among: list[str]) -> str:
    return min(among, key=lambda member_id: (len(given[member_id]), member_id))


def _subscribers(task: AssignmentTask) -> dict[TopicId, list[str]]:
    subscribers: dict[TopicId, list[str]] = {topic_id: [] for topic_id in task.subscribed}
    for member_id, member in task.members.items():
        for topic_id in member.topic_ids:
            subscribers[topic_id].append(member_id)
    return subscribers


def _all_partitions(task: AssignmentTask) -> list[TopicPartition]:
    return [each for topic_id in sorted(task.subscribed) for each in task.partitions_of(topic_id)]


def _without(
    partitions: list[TopicPartition], given: dict[str, set[TopicPartition]]
) -> list[TopicPartition]:
    taken = set(_flat(given))
    return [partition for partition in partitions if partition not in taken]


def _flat(given: dict[str, set[TopicPartition]]) -> Iterator[TopicPartition]:
    for partitions in given.values():
        yield from partitions
