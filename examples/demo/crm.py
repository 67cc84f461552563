"""The demo's own application: two mapped classes, as a small CRM has them, and the records they are filled with.

The people, the organisations and their dates are real; e-mail addresses, stages and amounts are made up. Nothing here
knows of pushlink but the two columns that show the remote id, which are ordinary columns of the application.
"""

from __future__ import annotations

import csv
import datetime as dt
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path

import pycountry
import sqlalchemy as sa
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

HERE = Path(__file__).parent


class Base(DeclarativeBase):
    """The application's tables."""


class Person(Base):
    """Somebody to sell to. Drafts stay at home: the pack says so."""

    __tablename__ = "people"

    id: Mapped[int] = mapped_column(primary_key=True)
    full_name: Mapped[str]
    email: Mapped[str | None]
    birthday: Mapped[dt.date | None]
    status: Mapped[str]
    note: Mapped[str | None]
    remote_id: Mapped[str | None]
    remote_source: Mapped[str | None]


class Organisation(Base):
    """A customer with an address and an amount that must not lose a cent."""

    __tablename__ = "organisations"

    id: Mapped[int] = mapped_column(primary_key=True)
    name: Mapped[str]
    city: Mapped[str | None]
    country: Mapped[str]
    annual_revenue: Mapped[Decimal | None] = mapped_column(sa.Numeric(16, 2))
    founded_on: Mapped[dt.date | None]
    remote_id: Mapped[str | None]
    remote_source: Mapped[str | None]


def people() -> list[Person]:
    """The people of `people.csv`, whose names are written in seven scripts."""
    return [
        Person(
            full_name=row["full_name"],
            email=row["email"] or None,
            birthday=_date(row["birthday"]),
            status=row["status"],
            note=row["note"] or None,
        )
        for row in _rows("people.csv")
    ]


def organisations() -> list[Organisation]:
    """The organisations of `organisations.csv`, and every country of ISO 3166."""
    listed = [
        Organisation(
            name=row["name"],
            city=row["city"],
            country=row["country"],
            annual_revenue=Decimal(row["annual_revenue"]) if row["annual_revenue"] else None,
            founded_on=_date(row["founded_on"]),
        )
        for row in _rows("organisations.csv")
    ]
    return listed + [Organisation(name=country.name, country=country.alpha_2) for country in pycountry.countries]


def _rows(name: str) -> Iterator[dict[str, str]]:
    with (HERE / name).open(encoding="utf-8", newline="") as file:
        yield from csv.DictReader(file)


def _date(text: str) -> dt.date | None:
    return dt.date.fromisoformat(text) if text else None
