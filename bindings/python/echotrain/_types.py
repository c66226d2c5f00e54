"""Types that the signatures of several modules name. Modules import them for type checkers alone."""

from __future__ import annotations

import os
from typing import Any, Iterable, Mapping, Protocol, Sequence, Tuple, Union

import numpy as np
from numpy.typing import NDArray

StrPath = Union[str, os.PathLike[str]]
Array = NDArray[Any]
Floats = NDArray[np.float32]
Numbers = Union[Sequence[float], Array]  # an option that is a list of numbers
Integers = Union[Sequence[int], NDArray[np.integer[Any]]]


class SupportsDLPack(Protocol):
    """A tensor of another library, in host memory."""

    def __dlpack__(self, *, stream: Any = ...) -> Any: ...

    def __dlpack_device__(self) -> Tuple[int, int]: ...


class Shaped(Protocol):
    """An array, of which only type and shape are of interest."""

    @property
    def dtype(self) -> Any: ...

    @property
    def shape(self) -> Iterable[int]: ...


_Number = Union[float, np.number[Any], np.bool_, Array]
# What a field can be made of. ArrayLike would do, but for text and complex numbers.
FieldLike = Union[SupportsDLPack, _Number, Sequence[_Number], Sequence[Sequence[_Number]],
                  Sequence[Sequence[Sequence[_Number]]]]
Fields = Mapping[str, FieldLike]
