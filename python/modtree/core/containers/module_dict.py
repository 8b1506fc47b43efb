# SPDX-License-Identifier: BSD-3-Clause
"""ModuleDict: modules under names."""

from __future__ import annotations

from collections.abc import ItemsView, Iterable, Iterator, KeysView, Mapping, ValuesView

from modtree.core.containers._pairs import pairs
from modtree.core.module import Module


class ModuleDict(Module):
    """A dict of modules that the tree sees, in the order of insertion.

    The keys are the names of the children, so a key must be a valid child name: a str, not empty,
    without a dot, and not the name of an attribute or method (``'keys'``, ``'type'``, ...). It has
    no ``forward``.

    Args:
        modules: a mapping, or an iterable of pairs, of names and modules.

    Example:
        >>> act = nn.ModuleDict({"relu": nn.ReLU(), "gelu": nn.GELU()})
        >>> act["gelu"] is act.gelu
        True
        >>> list(act)
        ['relu', 'gelu']
    """

    __module__ = "modtree.nn"  # the name in pickles and in repr

    # None entries are rare: no check at every use.
    _modules: dict[str, Module]  # type: ignore[assignment]

    def __init__(
        self,
        modules: Mapping[str, Module | None] | Iterable[tuple[str, Module | None]] | None = None,
    ) -> None:
        super().__init__()
        if modules is not None:
            self.update(modules)

    def __getitem__(self, key: str) -> Module:
        return self._modules[key]

    def __setitem__(self, key: str, module: Module | None) -> None:
        self.add_module(key, module)

    def __delitem__(self, key: str) -> None:
        del self._modules[key]

    def __len__(self) -> int:
        return len(self._modules)

    def __iter__(self) -> Iterator[str]:
        return iter(self._modules)

    def __contains__(self, key: object) -> bool:
        return key in self._modules

    def clear(self) -> None:
        """Removes all modules."""
        self._modules.clear()

    def pop(self, key: str) -> Module:
        """Removes and returns the module of that name; KeyError when there is none."""
        module = self[key]
        del self[key]
        return module

    def keys(self) -> KeysView[str]:
        """The names: a live view."""
        return self._modules.keys()

    def items(self) -> ItemsView[str, Module]:
        """Pairs of names and modules: a live view."""
        return self._modules.items()

    def values(self) -> ValuesView[Module]:
        """The modules: a live view."""
        return self._modules.values()

    def update(
        self,
        modules: Mapping[str, Module | None] | Iterable[tuple[str, Module | None]],
    ) -> None:
        """Sets every name of ``modules``, as ``dict.update`` does: what came before an error stays.

        Args:
            modules: a mapping, or an iterable of pairs, of names and modules.
        """
        if isinstance(modules, (Mapping, ModuleDict)):
            entries: Iterable[tuple[str, Module | None]] = modules.items()
        else:
            entries = pairs("ModuleDict", modules)
        for key, module in entries:
            self[key] = module
