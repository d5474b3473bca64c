"""State directories and real runs, as the tests of launching have them."""

from tests.launch.conftest import state as state
