import pytest

from stratalog.testing.store_contract.conditional_puts import ConditionalPutContract
from stratalog.testing.store_contract.keys import KeyContract
from stratalog.testing.store_contract.puts import PutContract
from stratalog.testing.store_contract.reads import ReadContract
from stratalog.testing.store_contract.streams import StreamContract


@pytest.mark.asyncio
class StoreContract(PutContract, ConditionalPutContract, ReadContract, KeyContract, StreamContract):
    """The promises of every object store.

    A subclass adds a fixture `store`, which opens an empty store and closes it in the end. If the
    remains of unfinished puts can be listed, the subclass overrides `leftovers`, too.
    """
