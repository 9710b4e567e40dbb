"""A control plane that was restored is not used before its recovery is finished.

Until then it does not know which offsets were given out after the backup, and would give them out
a second time.
"""

from stratalog.control.plane import ControlPlane
from stratalog.opening.errors import RecoveryUnfinishedError


async def check_recovered(control: ControlPlane) -> None:
    begun = await control.recoveries.unfinished()
    if begun is not None:
        raise RecoveryUnfinishedError(
            f"the recovery of {control.url} from {begun.ground} is not finished: repeat the"
            " restore, or run `stratalog control accept`"
        )
