"""A package that the model's code imports and the workers' image lacks is named before any worker is invoked."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pytest
from torch import Tensor, nn

from gradmux.infra.local.backend import LocalBackend
from gradmux.orchestrator import backends
from gradmux.orchestrator.config import JobConfig, Section
from gradmux.orchestrator.errors import ConfigError
from gradmux.orchestrator.ports import Packages
from gradmux.orchestrator.training.trial.packages import WORKER, canonical, with_needs
from scripts.exactness.cases import X, Y
from scripts.exactness.here import Case, prepared_of

NAME = "elsewhere"


class Elsewhere(LocalBackend):
    """The emulator, as if its workers had an image of their own."""

    name = NAME
    has: frozenset[str] = frozenset(WORKER)
    sure = True
    asked = 0

    @property
    def sections(self) -> Mapping[str, type[Section]]:
        return {}

    def packages(self, job: JobConfig) -> Packages:
        self.asked += 1
        return Packages(self.has, "the image of function f", "deploy it", sure=self.sure)


@pytest.fixture
def elsewhere() -> Iterator[Elsewhere]:
    backend = Elsewhere()
    backends.register(backend)
    yield backend
    backends.forget(NAME)


class Sorting(nn.Module):
    """Imports a package in its forward."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(20, 5)

    def forward(self, x: Tensor) -> Tensor:
        from sklearn.utils import check_array

        check_array(x.detach().numpy())
        return self.layer(x)  # type: ignore[no-any-return]


class Trying(Sorting):
    """Uses it where it is there."""

    def forward(self, x: Tensor) -> Tensor:
        try:
            import sklearn  # noqa: F401
        except ImportError:
            return self.layer(x)  # type: ignore[no-any-return]
        return self.layer(x)  # type: ignore[no-any-return]


def tried(factory: Any) -> None:
    prepared_of(Case("imports", "state", factory, X, Y), backend=NAME)


def test_a_package_that_the_image_lacks_is_named(elsewhere: Elsewhere) -> None:
    with pytest.raises(ConfigError, match=r"imports sklearn, of the package scikit-learn, which the image of function"):
        tried(Sorting)


def test_one_that_it_has_is_fine_with_all_that_it_needs(elsewhere: Elsewhere) -> None:
    elsewhere.has |= {"scikit_learn"}
    tried(Sorting)
    assert elsewhere.asked == 1


def test_what_is_not_known_is_a_warning(elsewhere: Elsewhere, caplog: pytest.LogCaptureFixture) -> None:
    elsewhere.sure = False
    with caplog.at_level(logging.WARNING):
        tried(Sorting)
    assert "which the image of function f may lack: deploy it" in caplog.text


def test_code_that_does_without_is_not_refused(elsewhere: Elsewhere) -> None:
    tried(Trying)
    assert elsewhere.asked == 1


def test_who_imports_nothing_asks_nobody(elsewhere: Elsewhere) -> None:
    tried(lambda: nn.Linear(20, 5))
    assert elsewhere.asked == 0


@pytest.mark.parametrize("names", [["scikit_learn"], ["Scikit.Learn"]])
def test_needs_are_found_by_any_spelling(names: Sequence[str]) -> None:
    assert {"scipy", "joblib", "numpy"} <= with_needs(names)
    assert canonical("A__b.C") == "a-b-c"
