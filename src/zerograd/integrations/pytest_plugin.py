"""`pytest --zerograd` watches what every test trains, and a finding fails its test.

pytest loads this module whenever zerograd is installed, so it loads nothing else of zerograd before
somebody asks for it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from zerograd.core.finding import Report

MARK = (
    "zerograd(allow=[…]): rules that the test may break under --zerograd, by name or code; "
    "allow=['ALL'] does not watch it"
)


def pytest_addoption(parser: pytest.Parser) -> None:
    """The option of the command line."""
    parser.getgroup("zerograd").addoption(
        "--zerograd",
        action="store_true",
        help="watch the gradients of every test; what breaks a rule of zerograd fails its test",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Watch the tests, if asked for."""
    config.addinivalue_line("markers", MARK)
    if config.getoption("zerograd"):
        from zerograd.integrations.watched_tests import WatchedTests

        config.pluginmanager.register(WatchedTests(), "zerograd_watched_tests")


@pytest.fixture
def gradient_report(request: pytest.FixtureRequest) -> Iterator[Report]:
    """What zerograd finds in this test from here on, as a `zerograd.Report` that grows.

    The test is watched with and without --zerograd. Its findings do not fail it: it decides itself.
    """
    from zerograd.integrations.watched_tests import JUDGES_ITSELF
    from zerograd.runtime.watch import Watch

    request.node.stash[JUDGES_ITSELF] = True
    watch = Watch(on="collect", searches=False)
    try:
        yield watch.start()
    finally:
        watch.stop()
