"""The base of the ledgers."""

from stratalog.control.sql.database import Database
from stratalog.ids import Entropy


class Ledger:
    """Operations on one noun of the control plane, over its database."""

    def __init__(self, database: Database, entropy: Entropy) -> None:
        self._database = database
        self._entropy = entropy
