"""Save and load tutored pupils and plain pupils with skops: no pickle, no code in the file."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Any

import skops.io

_OURS = "gnomon.learners.tutor_pupil."


def save(estimator: Any, path: str | Path) -> None:
    """Write a fitted estimator.

    Raises:
        ValueError: If the pupil is a function, expression or torch module, which skops cannot write.
    """
    pupil = getattr(estimator, "pupil_", None)
    if pupil is not None and not hasattr(pupil, "get_params"):
        raise ValueError(f"only tutors of scikit-learn pupils can be saved; this pupil is a {type(pupil).__name__}")
    skops.io.dump(estimator, path)


def load(path: str | Path) -> Any:
    """Read an estimator saved by :func:`save` or by ``skops.io.dump``.

    Types of this package, scikit-learn, numpy and scipy are trusted, nothing else.

    Raises:
        FileNotFoundError: If there is no such file.
        ValueError: If the file is not in skops format or holds a type that is not trusted.
    """
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"no file {path}")
    try:
        unknown = skops.io.get_untrusted_types(file=path)
    except (zipfile.BadZipFile, KeyError, ValueError, TypeError) as error:
        raise ValueError(f"{path} is not a skops file: {error}") from error
    foreign = [name for name in unknown if not name.startswith((_OURS, "sklearn."))]
    if foreign:
        raise ValueError(f"{path} holds types that are not trusted: {', '.join(sorted(foreign))}")
    return skops.io.load(path, trusted=unknown)
