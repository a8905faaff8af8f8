"""The store at an address."""

from __future__ import annotations

from pytest_tfperf.errors import StoreError
from pytest_tfperf.run_history.stores import HistoryStore

_DATABASES = ("postgresql", "postgres")


def open_store(address: str) -> HistoryStore:
    """
    Open the store at an address: a folder, a URL of fsspec, or postgresql://.

    Raises:
        StoreError: If a package is missing, or nothing can be reached there.
    """
    scheme = address.partition("://")[0].partition("+")[0] if "://" in address else ""
    if scheme in _DATABASES:
        try:
            from pytest_tfperf.run_history.postgres import PostgresStore
        except ImportError as error:
            raise _missing(error, "postgresql") from error
        return PostgresStore(address)
    try:
        from pytest_tfperf.run_history.objects import ObjectStore
    except ImportError as error:
        raise _missing(error, "history") from error
    return ObjectStore(address)


def _missing(error: ImportError, extra: str) -> StoreError:
    return StoreError(
        f"the history needs {error.name}: install it with pip install 'pytest-tfperf[{extra}]'"
    )
