"""Optional parts of the package: the check that one is installed, and the line that installs it."""

from importlib.util import find_spec

from stratalog.errors import MissingExtraError

INSTALL_SPARK = "pip install 'stratalog[spark]'"

_SPARK_PACKAGES = ("pyspark", "pyarrow", "pandas")


def has_spark() -> bool:
    return not _missing_for_spark()


def require_spark(purpose: str) -> None:
    """Raise `MissingExtraError` unless the packages of the extra `spark` are installed."""
    missing = _missing_for_spark()
    if missing:
        raise MissingExtraError(
            f"{purpose} needs {' and '.join(missing)}, not installed here: {INSTALL_SPARK}"
        )


def _missing_for_spark() -> list[str]:
    return [name for name in _SPARK_PACKAGES if find_spec(name) is None]
