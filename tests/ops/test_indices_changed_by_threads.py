# SPDX-License-Identifier: BSD-3-Clause
"""Indices, labels and lengths that another thread changes while an operation uses them: an error or
a wrong sum, and no access outside of the memory. A sanitizer (``tools/sanitize``) sees each.
"""

from __future__ import annotations

import threading
import time

import numpy as np
import pytest

import modtree as mt
import modtree.nn.functional as F  # noqa: N812

_ROWS, _COUNT = 50, 4000
_HUGE = 1 << 40


def _indices(*shape):
    values = np.random.default_rng(0).integers(0, _ROWS, shape or (_COUNT,))
    return mt.from_numpy(values)


def _back(make):
    """The backward of what ``make(leaf, index)`` gives."""

    def run(leaf, index):
        make(leaf, index).sum().backward()

    return run


def _table():
    return mt.ones(_ROWS, 8, requires_grad=True)


def _logits():
    return mt.ones(_COUNT, _ROWS, requires_grad=True)


def _planes():
    return mt.ones(1, 4, 1000, requires_grad=True)


def _unpool(leaf, index):
    shape = (1, 4, 20, 50)
    F.max_unpool2d(leaf.view(shape), index.view(shape), 1).sum().backward()


def _pool_back(leaf, index):
    g, places = leaf.detach().view(1, 1, 4, 1000), index.view(1, 1, 4, 1000)
    mt._C.kernels.max_pool_backward(g._array, places._array, (5, 10))


def _ctc(leaf, index):
    labels = index[:40].view(2, 20)
    lengths = index[40:42]
    F.ctc_loss(leaf[:100].view(50, 2, _ROWS).log_softmax(-1), labels, mt.tensor([50, 50]), lengths)


_USES = {
    "scatter_add": (_table, lambda x, i: x.detach().scatter_add(0, i.view(-1, 8), mt.ones(500, 8))),
    "scatter": (_table, lambda x, i: x.detach().scatter(0, i.view(-1, 8), mt.ones(500, 8))),
    "scatter_reduce": (
        _table,
        lambda x, i: x.detach().scatter_reduce(0, i.view(-1, 8), mt.ones(500, 8), "prod"),
    ),
    "gather": (_table, _back(lambda x, i: x.gather(0, i.view(-1, 8)))),
    "index_select": (_table, _back(lambda x, i: x.index_select(0, i))),
    "index_add": (_table, lambda x, i: x.detach().index_add(0, i, mt.ones(_COUNT, 8))),
    "index_copy": (_table, lambda x, i: x.detach().index_copy(0, i, mt.ones(_COUNT, 8))),
    "index_put": (_table, lambda x, i: x.detach().index_put((i,), mt.ones(_COUNT, 8))),
    "accumulate": (_table, lambda x, i: x.detach().index_put((i,), mt.ones(_COUNT, 8), True)),
    "getitem": (_table, _back(lambda x, i: x[i])),
    "setitem": (_table, lambda x, i: x.detach().__setitem__(i, 1.0)),
    "take_along_dim": (_table, _back(lambda x, i: x.take_along_dim(i.view(-1, 8), 0))),
    "embedding": (_table, _back(lambda x, i: F.embedding(i, x))),
    "embedding_by_frequency": (
        _table,
        _back(lambda x, i: F.embedding(i, x, scale_grad_by_freq=True)),
    ),
    "embedding_bag": (_table, _back(lambda x, i: F.embedding_bag(i.view(-1, 8), x))),
    "cross_entropy": (_logits, _back(F.cross_entropy)),
    "weighted_cross_entropy": (
        _logits,
        _back(lambda x, i: F.cross_entropy(x, i, mt.ones(_ROWS), label_smoothing=0.1)),
    ),
    "nll_loss": (_logits, _back(lambda x, i: F.nll_loss(x, i, mt.ones(_ROWS)))),
    "ctc_loss": (_logits, _ctc),
    "max_unpool": (_planes, _unpool),
    "max_pool_backward": (_planes, _pool_back),
}


@pytest.mark.parametrize("name", _USES)
def test_indices_that_another_thread_changes_lead_to_no_other_memory(name):
    make, use = _USES[name]
    index, stop = _indices(), threading.Event()
    own = np.array(index.numpy())
    view = index.numpy()

    def change():
        while not stop.is_set():
            view[:] = _HUGE
            view[::2] = -_HUGE
            view[:] = own

    thread = threading.Thread(target=change)
    thread.start()
    try:
        end = time.monotonic() + 0.3
        for _ in range(200):
            try:
                use(make(), index)
            except (IndexError, RuntimeError, ValueError, MemoryError):
                pass  # what was there when the indices were looked at
            if time.monotonic() > end:
                break
    finally:
        stop.set()
        thread.join()
    view[:] = own
    use(make(), index)  # and the operation itself holds


@pytest.mark.parametrize("name", ["cross_entropy", "scatter_add_rows", "max_pool_backward", "ctc"])
@pytest.mark.parametrize("wrong", [_ROWS, -1, _HUGE, np.iinfo(np.int64).min])
def test_kernels_raise_for_an_index_out_of_range(name, wrong):
    kernels = mt._C.kernels
    index = np.array([0, wrong], np.int64)
    logits = np.ones((2, _ROWS), np.float32)
    with pytest.raises(IndexError, match="out of|range"):
        if name == "cross_entropy":
            kernels.cross_entropy(logits, index)
        elif name == "scatter_add_rows":
            kernels.scatter_add_rows(index, logits, _ROWS)
        elif name == "max_pool_backward":
            kernels.max_pool_backward(logits[:, :1, None], index.reshape(2, 1, 1), (5, 10))
        else:
            ones = np.ones(1, np.int64)
            kernels.ctc(logits[:, None], index, 0 * ones, 2 * ones, 2 * ones, 0)


def test_the_gradient_of_cross_entropy_checks_its_targets():
    one = np.ones(2, np.float32)
    with pytest.raises(IndexError, match="Target 9 is out of bounds"):
        mt._C.kernels.cross_entropy_backward(
            one, np.ones((2, 3), np.float32), np.array([0, 9]), one
        )
