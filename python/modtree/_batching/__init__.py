# SPDX-License-Identifier: BSD-3-Clause
"""vmap: operations on a whole batch in a function that is written for one sample.

A :class:`~modtree._batching.tensor.BatchedTensor` looks like one sample and holds all of them, with
the batch as dimension 0. Native code hands every operation that meets one to
:mod:`modtree._batching.call`, which finds the rule of the operation; one without a rule is called
for each sample. Rules call operations on the tensors with the batch, so gradients and outer levels
of ``vmap`` need nothing of their own.
"""

from __future__ import annotations

from modtree._batching import call  # noqa: F401  # hands itself over to native code
