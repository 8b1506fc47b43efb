# SPDX-License-Identifier: BSD-3-Clause
"""pyro: layers as PyroModule[...], copied, pickled and saved whole, turned Bayesian and trained."""

from __future__ import annotations

import copy
import io
import pickle
from typing import Any

import pyro
import torch
from outcome import error_of, report, seed, state, train, tree
from pyro import distributions as dist
from pyro.infer import SVI, Trace_ELBO
from pyro.infer.autoguide import AutoNormal
from pyro.nn import PyroModule, PyroParam, PyroSample
from pyro.nn.module import to_pyro_module_
from torch import nn
from torch.distributions import constraints


class Regression(PyroModule):
    def __init__(self) -> None:
        super().__init__()
        self.layer = PyroModule[nn.Linear](2, 1)
        self.layer.weight = PyroSample(dist.Normal(0.0, 1.0).expand([1, 2]).to_event(2))
        self.noise = PyroParam(torch.tensor(0.5), constraint=constraints.positive)

    def forward(self, x: torch.Tensor, y: torch.Tensor | None = None) -> torch.Tensor:
        mean = self.layer(x).squeeze(-1)
        with pyro.plate("data", x.shape[0]):
            pyro.sample("obs", dist.Normal(mean, self.noise), obs=y)
        return mean


def saved(module: nn.Module) -> Any:
    buffer = io.BytesIO()
    torch.save(module, buffer)
    buffer.seek(0)
    return torch.load(buffer, weights_only=False)


def copies() -> dict[str, Any]:
    seed()
    net = PyroModule[nn.Sequential](
        PyroModule[nn.Linear](2, 3), PyroModule[nn.BatchNorm1d](3), PyroModule[nn.Linear](3, 1)
    )
    net.eval()
    x = torch.randn(4, 2)
    facts: dict[str, Any] = {"tree": tree(net), "state": state(net), "value": net(x)}
    ways = {
        "copy": copy.copy,
        "deepcopy": copy.deepcopy,
        "pickle 2": lambda m: pickle.loads(pickle.dumps(m, 2)),
        "pickle 5": lambda m: pickle.loads(pickle.dumps(m, 5)),
        "saved": saved,
    }
    for name, way in ways.items():
        other = way(net)
        facts[name] = [
            tree(other),
            state(other),
            other(x),
            other.training,
            type(other) is type(net),
            list(vars(other)) == list(vars(net)),
            [own is new for own, new in zip(net.modules(), other.modules(), strict=True)],
        ]
    trained = copy.deepcopy(net)
    facts["trained"] = train(trained, lambda: trained(x).square().mean())
    return facts


def converted() -> dict[str, Any]:
    seed()
    net = nn.Sequential(nn.Linear(2, 2), nn.ReLU(), nn.Linear(2, 1))
    to_pyro_module_(net)
    for module in net.modules():
        for name, value in list(module.named_parameters(recurse=False)):
            prior = dist.Normal(0.0, 1.0).expand(value.shape).to_event(value.dim())
            setattr(module, name, PyroSample(prior))
    x = torch.ones(3, 2)
    return {"tree": tree(net), "value": net(x), "copy": tree(copy.deepcopy(net))}


def inference() -> dict[str, Any]:
    seed()
    pyro.clear_param_store()
    pyro.set_rng_seed(1)
    x = torch.randn(8, 2)
    y = x.sum(-1)
    model = Regression()
    guide = AutoNormal(model)
    svi = SVI(model, guide, pyro.optim.Adam({"lr": 0.05}), Trace_ELBO())
    losses = [svi.step(x, y) for _ in range(5)]
    other = copy.deepcopy(model)
    return {
        "losses": losses,
        "state": state(model),
        "copy": state(other),
        "guide": {k: v.detach() for k, v in guide.named_parameters()},
        "no module": error_of(lambda: PyroModule[int]),
    }


def main() -> dict[str, Any]:
    return {"copies": copies(), "converted": converted(), "inference": inference()}


if __name__ == "__main__":
    report(main())
