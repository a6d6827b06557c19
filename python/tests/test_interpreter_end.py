"""A sandbox that was not closed aborted the interpreter at its end."""

from collections.abc import Callable

import pytest
from interpreter_end import SCENARIOS, check


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.__name__)
def test_an_interpreter_ends_cleanly_with(scenario: Callable[[], None]) -> None:
    check(scenario)
