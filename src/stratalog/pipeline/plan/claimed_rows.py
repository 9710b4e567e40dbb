"""The rows of a claim, and the check that they have no hole. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass

from stratalog.control.log.model import Coordinates
from stratalog.control.pipeline.model import Claim
from stratalog.ids import Offset
from stratalog.pipeline.errors import HoleError


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimedRows:
    """A claim, and the rows in its range in offset order."""

    claim: Claim
    rows: Sequence[Coordinates]
    end_offset: Offset
    """The offset where the rows must end. It is the end of the claim, or an earlier one if the rows
    are too many for one run, or if a row now reaches beyond the claim."""

    @property
    def is_cut(self) -> bool:
        return self.end_offset < self.claim.end_offset


def check_rows(claimed: ClaimedRows) -> None:
    """Raise unless the rows fill the claim's range without a hole."""
    expected = int(claimed.claim.first_offset)
    for row in claimed.rows:
        if row.base_offset != expected:
            raise HoleError(
                f"after offset {expected - 1} comes a row at {row.base_offset}; run"
                " `stratalog fsck`"
            )
        expected = row.last_offset + 1
    if expected != claimed.end_offset:
        raise HoleError(
            f"the rows end at offset {expected - 1}, not {claimed.end_offset - 1}; run"
            " `stratalog fsck`"
        )
