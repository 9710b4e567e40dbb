"""What the control plane's operations have in common."""

from stratalog.control.sql.database import Database
from stratalog.ids import Entropy


class Ledger:
    """Base of the parts of `ControlPlane`, which are cut by noun."""

    def __init__(self, database: Database, entropy: Entropy) -> None:
        self._database = database
        self._entropy = entropy
