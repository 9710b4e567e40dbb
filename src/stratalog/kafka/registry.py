"""Finds the handlers: every module of `kafka/handlers/` is imported, so that an API is added by
adding a file."""

import importlib
import pkgutil
from collections.abc import Mapping
from functools import cache
from typing import Any

from stratalog.clock import Clock
from stratalog.kafka.errors import DuplicateHandlerError
from stratalog.kafka.server.components import Components, DataComponents
from stratalog.kafka.server.dispatch import Dispatcher
from stratalog.kafka.server.handler import Handler
from stratalog.kafka.server.metrics import RequestMetrics
from stratalog.kafka.server.work import Workplace
from stratalog.kafka.wire.api import ApiKey, Versions

_HANDLERS = "stratalog.kafka.handlers"


@cache
def handler_classes() -> Mapping[ApiKey, type[Handler[Any]]]:
    """Every handler, in the order of API keys."""
    found: dict[ApiKey, type[Handler[Any]]] = {}
    package = importlib.import_module(_HANDLERS)
    for module_info in pkgutil.iter_modules(package.__path__):
        module = importlib.import_module(f"{_HANDLERS}.{module_info.name}")
        for handler in vars(module).values():
            if not _is_handler_of(handler, module.__name__):
                continue
            if handler.key in found:
                raise DuplicateHandlerError(f"{handler} and {found[handler.key]}")
            found[handler.key] = handler
    return dict(sorted(found.items()))


def _is_handler_of(candidate: Any, module: str) -> bool:
    return (
        isinstance(candidate, type)
        and issubclass(candidate, Handler)
        and candidate.__module__ == module
        and hasattr(candidate, "key")
    )


def served() -> Mapping[ApiKey, Versions]:
    return {key: handler.versions for key, handler in handler_classes().items()}


def dispatcher(
    components: Components, *, clock: Clock, metrics: RequestMetrics, workplace: Workplace
) -> Dispatcher:
    """The `Acceptor` that a node gives to `Server.start`."""
    handlers = {key: handler(components) for key, handler in handler_classes().items()}
    return Dispatcher(handlers, clock=clock, metrics=metrics, workplace=workplace)


def data_dispatcher(
    components: DataComponents, *, clock: Clock, metrics: RequestMetrics, workplace: Workplace
) -> Dispatcher:
    """The `Acceptor` of the requests that every worker serves."""
    handlers = {key: handler_classes()[key](components) for key in data_keys()}
    return Dispatcher(handlers, clock=clock, metrics=metrics, workplace=workplace)


def data_keys() -> list[ApiKey]:
    """The APIs that every worker serves."""
    return [key for key, handler in handler_classes().items() if handler.in_every_worker]
