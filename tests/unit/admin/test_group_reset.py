import pytest

from stratalog.admin.errors import GroupInUseError
from stratalog.admin.group_reset import Move, Reader, Target, check_unused, plan_reset


def test_the_plan_of_a_reset_shows_old_and_new_place() -> None:
    moves = plan_reset([Target(0, 2, 10), Target(1, 0, 0)], {0: 8})
    assert moves == [Move(0, 8, 2, 10, 8), Move(1, None, 0, 0, 0)]


def test_a_group_without_members_may_be_reset() -> None:
    check_unused("billing", [])


@pytest.mark.parametrize(("members", "said"), [(1, "has 1 member,"), (2, "has 2 members,")])
def test_a_group_with_members_is_refused_with_the_name_of_one(members: int, said: str) -> None:
    with pytest.raises(GroupInUseError, match="such as app at ten: stop them first") as caught:
        check_unused("billing", [Reader("app", "ten")] * members)
    assert said in str(caught.value)
