"""Certificates for the tests of the wire, made once a session."""

from __future__ import annotations

import pytest

from pushlink.testing.certificates import Certificates, make_certificates


@pytest.fixture(scope="session")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return make_certificates(tmp_path_factory.mktemp("certificates"))
