"""The control plane: the ledgers of a cluster, over one database.

Times in answers come from the database's clock. Calls that may have taken effect although they
failed raise `OutcomeUnknownError`; calls that certainly did not raise `ControlUnavailableError`.
Every call is one transaction, or a few that say so.
"""

from stratalog.clock import SYSTEM_CLOCK, Clock
from stratalog.control.brokers.ledger import BrokersLedger
from stratalog.control.groups.ledger import GroupsLedger
from stratalog.control.identity.ledger import IdentityLedger
from stratalog.control.log.ledger import LogLedger
from stratalog.control.lost.ledger import LostRangesLedger
from stratalog.control.objects.ledger import ObjectsLedger
from stratalog.control.pipeline.ledger import PipelineLedger
from stratalog.control.recoveries.ledger import RecoveriesLedger
from stratalog.control.scans.ledger import ScansLedger
from stratalog.control.segments.ledger import SegmentsLedger
from stratalog.control.settings.ledger import ClusterSettingsLedger
from stratalog.control.sql.database import Database
from stratalog.control.topics.ledger import TopicsLedger
from stratalog.control.writers.ledger import WritersLedger
from stratalog.ids import Entropy


class ControlPlane:
    def __init__(self, database: Database, entropy: Entropy, clock: Clock = SYSTEM_CLOCK) -> None:
        self._database = database
        self.identity = IdentityLedger(database, entropy)
        self.settings = ClusterSettingsLedger(database, entropy)
        self.brokers = BrokersLedger(database, entropy)
        self.topics = TopicsLedger(database, entropy)
        self.log = LogLedger(database, entropy)
        self.lost = LostRangesLedger(database, entropy)
        self.objects = ObjectsLedger(database, entropy)
        self.segments = SegmentsLedger(database, entropy)
        self.pipeline = PipelineLedger(database, entropy, clock)
        self.scans = ScansLedger(database, entropy)
        self.recoveries = RecoveriesLedger(database, entropy)
        self.groups = GroupsLedger(database, entropy)
        self.writers = WritersLedger(database, entropy)

    @property
    def database(self) -> Database:
        """The database under the ledgers, for backups, which copy all of its tables."""
        return self._database

    @property
    def url(self) -> str:
        """The address without any secret in it, for people."""
        return self._database.url

    async def close(self) -> None:
        await self._database.close()
