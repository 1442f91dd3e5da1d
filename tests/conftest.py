"""Fixtures for every test, and the shape checker: jaxtyping annotations are enforced while pytest runs."""

from pathlib import Path

import pytest
from hypothesis import settings
from jaxtyping import install_import_hook

install_import_hook("las", "beartype.beartype")

# Without a deadline per example: the first call into torch may take a second on a busy machine.
settings.register_profile("las", deadline=None)
settings.load_profile("las")

REPOSITORY = Path(__file__).parents[1]
SHARED_DATA = REPOSITORY.parent / "shared" / "data"


@pytest.fixture
def shared_data() -> Path:
    """Real speech for tests; it lies beside the checkout where it may, and is not part of the project."""
    if not SHARED_DATA.is_dir():
        pytest.skip(f"real speech is not available: {SHARED_DATA} does not exist")
    return SHARED_DATA
