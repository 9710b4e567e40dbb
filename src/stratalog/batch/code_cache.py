"""The cache of compiled loops: executors load machine code instead of compiling it again."""

import os
import platform
import stat
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar, cast

import numba
from llvmlite.binding import get_host_cpu_features

_Function = TypeVar("_Function", bound=Callable[..., Any])


def has_crc_instruction() -> bool:
    """Return True if loops may use the CRC-32C instruction of x86 processors.

    The processor must have it, and the compiler must not be set to generate code for another
    one: it would end the process.
    """
    config, features = cast(Any, numba.config), cast(Any, get_host_cpu_features)
    is_told = config.CPU_NAME is not None or config.CPU_FEATURES is not None
    if is_told or platform.machine() not in ("x86_64", "AMD64"):
        return False
    return bool(features().get("sse4.2"))


def inlined(function: _Function) -> _Function:
    """Compile the function into its callers, and cache it with them."""
    return cast(_Function, numba.njit(nogil=True)(function))


def compiled(signature: Any) -> Callable[[_Function], _Function]:
    """Compile for these types and no others, now, unless an earlier process has.

    Numba keeps the code in `NUMBA_CACHE_DIR` if that is set, otherwise beside the source file,
    otherwise in the user's cache folder, and refuses if it can write to none of them. That is an
    executor with a read-only installation and without a home; it gets a folder of its user's
    among the temporary ones. Several processes may write at once: files are moved into place.
    """

    def decorate(function: _Function) -> _Function:
        try:
            return _compile(signature, function)
        except RuntimeError as error:
            if "no locator available" not in str(error):
                raise
        folder = _temporary_folder()
        if folder is None:
            return _compile(signature, function, cache=False)
        config: Any = numba.config
        config.CACHE_DIR = str(folder)
        return _compile(signature, function)

    return decorate


def _compile(signature: Any, function: _Function, cache: bool = True) -> _Function:
    return cast(_Function, numba.njit(signature, cache=cache, nogil=True)(function))


def _temporary_folder() -> Path | None:
    """Cached code is executed, so a folder that others may write to will not do."""
    folder = Path(tempfile.gettempdir()) / f"stratalog-code-{os.getuid()}"
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        found = folder.lstat()
    except OSError:
        return None
    is_ours = found.st_uid == os.getuid() and not stat.S_IMODE(found.st_mode) & 0o077
    return folder if stat.S_ISDIR(found.st_mode) and is_ours else None
