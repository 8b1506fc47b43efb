# SPDX-License-Identifier: BSD-3-Clause
"""Keras 3 on its NumPy backend: trees of layers that are never built or called on data."""

from __future__ import annotations

import functools
from typing import Any

import keras
import numpy as np

from bench.peers.base import Peer
from bench.trees import Side


class _Layer(keras.layers.Layer):
    def call(self, x: Any) -> Any:
        return x

    def register_buffer(self, name: str, value: Any) -> None:
        setattr(self, name, keras.Variable(value, trainable=False))


def _zeros() -> Any:
    return np.zeros(4, np.float32)


def _variable() -> Any:
    return keras.Variable(_zeros())


@functools.cache
def _side() -> Side:
    return Side("keras", _Layer, list, lambda *m: list(m), _zeros, _variable, keras)


class Library(Peer):
    def side(self) -> Side:
        return _side()

    def parameters(self, m: Any) -> Any:
        """`m.weights`"""
        return m.weights

    def named(self, m: Any) -> Any:
        """`[(w.path, w) for w in m.weights]`"""
        return [(w.path, w) for w in m.weights]

    def modules(self, m: Any) -> Any:
        """`m._flatten_layers()`"""
        return list(m._flatten_layers())

    def state(self, m: Any) -> Any:
        """`m.get_weights()`, a list of arrays"""
        return m.get_weights()

    def foreign(self, m: Any) -> Any:
        return [_zeros() for _ in m.weights]

    def load(self, m: Any, state: Any) -> Any:
        """`m.set_weights(arrays)`, copies values"""
        return m.set_weights(state)
