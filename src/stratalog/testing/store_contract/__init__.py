"""The contract of object stores, as tests that any implementation can run.

Subclass `StoreContract` in a test module and give it a fixture `store`. The tests are coroutines,
which pytest-asyncio runs.
"""

from stratalog.testing.store_contract.contract import StoreContract

__all__ = ["StoreContract"]
