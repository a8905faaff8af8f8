"""
A history in PostgreSQL: the tables `tfperf_runs`, a row a run, and `tfperf_rows_1`, a row a metric.

The number is the format of the rows. The first writer makes the tables. A reader needs the
right to SELECT, a writer also INSERT, and only pruning DELETE.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, fields
from datetime import datetime
from typing import Any

import psycopg
import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import JSONB, insert

from pytest_tfperf.errors import StoreError
from pytest_tfperf.stores import MOST_ROWS
from pytest_tfperf.stores.rows import (
    FIRST_RUN,
    ROW_FORMAT,
    Answer,
    MetricRow,
    RunRows,
    Selection,
)

_CONNECT_S, _STATEMENT_MS = 15, 120_000
_LOCK = 0x7466_7065_7266  # of the transaction that makes the tables: "tfperf"
_SQL_TYPES: dict[str, Any] = {
    "str": sa.Text(),
    "float | None": sa.Double(),
    "bool": sa.Boolean(),
    "datetime": sa.DateTime(),
}
_TABLES = sa.MetaData()
_RUN_TABLE = sa.Table(
    "tfperf_runs",
    _TABLES,
    sa.Column("project", sa.Text(), primary_key=True),
    sa.Column("run", sa.Text(), primary_key=True),
    sa.Column("created", sa.DateTime(), nullable=False),
    sa.Column("commit", sa.Text(), nullable=False),
    sa.Column("content", JSONB(), nullable=False),
)
_ROW_TABLE = sa.Table(
    f"tfperf_rows_{ROW_FORMAT}",
    _TABLES,
    *(
        sa.Column(item.name, _SQL_TYPES[str(item.type)], nullable=str(item.type).endswith("| None"))
        for item in fields(MetricRow)
    ),
    sa.Index("tfperf_rows_of_metric", "project", "metric", "file", "test", "created"),
    sa.Index("tfperf_rows_of_run", "project", "run"),
)


class PostgresStore:
    """A history in a PostgreSQL database, by its URL as libpq and SQLAlchemy write it."""

    unread: Sequence[str] = ()

    def __init__(self, address: str) -> None:
        try:
            url = sa.make_url(address).set(drivername="postgresql+psycopg")
        except sa.exc.ArgumentError as error:
            raise StoreError(
                "history: this is no URL of a PostgreSQL database; write it as "
                "postgresql://USER@HOST/DATABASE"
            ) from error
        shown = url.set(drivername="postgresql").render_as_string(hide_password=True)
        self.name = f"history {shown}"
        self._engine = sa.create_engine(
            url,
            poolclass=sa.pool.NullPool,
            connect_args={
                "connect_timeout": _CONNECT_S,
                "options": f"-c statement_timeout={_STATEMENT_MS}",
            },
        )

    def refuse_missing(self) -> None:
        """Check that the tables are there: see `HistoryStore`."""
        with self._blaming("cannot be read"):
            if not self._has_tables():
                raise StoreError(f"{self.name}: it has no tables; {FIRST_RUN}")

    def append(self, run: RunRows) -> bool:
        """Store a run in one transaction: see `HistoryStore`."""
        known = {
            "run": run.run,
            "project": run.project,
            "created": run.created,
            "commit": run.commit,
        }
        with self._blaming("cannot be written"):
            self._make_tables()
            with self._engine.begin() as connection:
                content = sa.cast(sa.literal(run.text, sa.Text()), JSONB)
                statement = insert(_RUN_TABLE).values(**known, content=content)
                added = connection.execute(
                    statement.on_conflict_do_nothing().returning(_RUN_TABLE.c.run)
                ).scalar()
                rows = [asdict(row) for part in run.rows.values() for row in part]
                if added and rows:
                    connection.execute(sa.insert(_ROW_TABLE), rows)
        return added is not None

    def rows(self, selection: Selection) -> list[MetricRow]:
        """Return the rows of a selection: see `HistoryStore`."""
        query = sa.select(_ROW_TABLE).order_by("created", "run").limit(MOST_ROWS + 1)
        for column, operator, value in selection.conditions:
            of = _ROW_TABLE.c[column]
            query = query.where(of.in_(value) if operator == "IN" else of.op(operator)(value))
        with self._blaming("cannot be read"), self._reading() as connection:
            if connection is None:
                return []
            found = [MetricRow(**row) for row in connection.execute(query).mappings()]
        if len(found) > MOST_ROWS:
            raise StoreError(f"more than {MOST_ROWS:,} rows; ask for fewer with --since")
        return found

    def sql(self, query: str, project: str) -> Answer:
        """Answer a query in a transaction that cannot write: see `HistoryStore`."""
        runs = sa.select(_ROW_TABLE)
        if project:
            runs = runs.where(_ROW_TABLE.c.project == project)
        table = str(runs.compile(self._engine, compile_kwargs={"literal_binds": True}))
        table = table.replace("%%", "%")  # doubled for a driver that is given parameters
        # a query that is prepared is a single statement, which cannot end the transaction
        asked = f"WITH runs AS ({table}) SELECT * FROM ({query.strip().rstrip(';')}\n) AS answer"  # noqa: S608  # the user's own
        with self._blaming("SQL"), self._reading() as connection:
            if connection is None:
                return Answer(columns=(), rows=())
            driver = connection.connection.driver_connection
            assert driver is not None
            driver.read_only = True
            answer = driver.execute(asked, prepare=True)
            return Answer(
                columns=tuple(column.name for column in answer.description or ()),
                rows=tuple(answer.fetchmany(MOST_ROWS)),
            )

    def prune(self, project: str, before: datetime, dry: bool) -> int:
        """Remove runs in one transaction: see `HistoryStore`."""
        old = sa.and_(_RUN_TABLE.c.project == project, _RUN_TABLE.c.created < before)
        ids = sa.select(_RUN_TABLE.c.run).where(old)
        with self._blaming("cannot be pruned"), self._reading() as connection:
            if connection is None:
                return 0
            number = len(connection.execute(ids).all())
        if number and not dry:
            rows = sa.and_(_ROW_TABLE.c.project == project, _ROW_TABLE.c.run.in_(ids))
            with self._blaming("cannot be pruned"), self._engine.begin() as connection:
                connection.execute(sa.delete(_ROW_TABLE).where(rows))
                connection.execute(sa.delete(_RUN_TABLE).where(old))
        return number

    def _make_tables(self) -> None:
        if self._has_tables():
            return
        with self._engine.begin() as connection:
            # two writers that make the same table at once would disturb each other
            connection.execute(sa.select(sa.func.pg_advisory_xact_lock(_LOCK)))
            _TABLES.create_all(connection)

    def _has_tables(self) -> bool:
        return sa.inspect(self._engine).has_table(_ROW_TABLE.name)

    @contextmanager
    def _reading(self) -> Iterator[sa.Connection | None]:
        """Open a transaction that can only read; None before the first run is stored."""
        if not self._has_tables():
            yield None
            return
        with self._engine.connect() as connection:
            yield connection.execution_options(postgresql_readonly=True)

    @contextmanager
    def _blaming(self, what: str) -> Iterator[None]:
        """Turn the database's errors into one sentence, which has no password."""
        try:
            yield
        except (sa.exc.SQLAlchemyError, psycopg.Error) as error:
            cause = getattr(error, "orig", None) or error
            why = " ".join(str(cause).split())
            raise StoreError(f"{self.name} {what}: {why}") from error
