# SPDX-License-Identifier: BSD-3-Clause
"""gpytorch: exact and variational Gaussian processes, constraints, priors, batches of models."""

from __future__ import annotations

import copy
import warnings
from typing import Any

import gpytorch
import torch
from gpytorch import constraints, kernels, likelihoods, means, mlls, priors, variational
from outcome import report, seed, state, tree


class Exact(gpytorch.models.ExactGP):
    def __init__(self, x: Any, y: Any, likelihood: Any) -> None:
        super().__init__(x, y, likelihood)
        self.mean_module = means.ConstantMean(constant_prior=priors.NormalPrior(0.0, 1.0))
        base = kernels.RBFKernel(
            ard_num_dims=2, lengthscale_prior=priors.GammaPrior(3.0, 6.0),
            lengthscale_constraint=constraints.Interval(0.01, 5.0),
        ) + kernels.MaternKernel(nu=1.5)  # fmt: skip
        self.covar_module = kernels.ScaleKernel(base, outputscale_prior=priors.GammaPrior(2, 1))

    def forward(self, x: torch.Tensor) -> Any:
        return gpytorch.distributions.MultivariateNormal(self.mean_module(x), self.covar_module(x))


class Variational(gpytorch.models.ApproximateGP):
    def __init__(self, points: torch.Tensor) -> None:
        strategy = variational.VariationalStrategy(
            self, points, variational.CholeskyVariationalDistribution(points.size(0))
        )
        super().__init__(strategy)
        self.mean_module = means.LinearMean(2)
        self.covar_module = kernels.ScaleKernel(kernels.PeriodicKernel() * kernels.RBFKernel())

    def forward(self, x: torch.Tensor) -> Any:
        return gpytorch.distributions.MultivariateNormal(self.mean_module(x), self.covar_module(x))


def steps(modules: list[Any], loss: Any, count: int = 4) -> list[float]:
    optimizer = torch.optim.Adam([p for m in modules for p in m.parameters()], lr=0.1)
    losses = []
    for _ in range(count):
        optimizer.zero_grad()
        value = loss()
        value.backward()
        optimizer.step()
        losses.append(value.item())
    return losses


def exact(x: torch.Tensor, y: torch.Tensor) -> dict[str, Any]:
    likelihood = likelihoods.GaussianLikelihood(noise_constraint=constraints.GreaterThan(1e-3))
    model = Exact(x, y, likelihood)
    likelihood.noise = 0.05
    model.initialize(**{"covar_module.outputscale": 1.3, "mean_module.constant": 0.1})
    objective = mlls.ExactMarginalLogLikelihood(likelihood, model)
    model.train()
    losses = steps([model], lambda: -objective(model(x), y))
    model.eval()
    with torch.no_grad():
        predicted = likelihood(model(x[:3] + 0.1))
        copied = copy.deepcopy(model)(x[:3] + 0.1)
    other = Exact(x, y, likelihoods.GaussianLikelihood())
    loaded = other.load_state_dict(model.state_dict())
    return {
        "losses": losses,
        "mean": predicted.mean,
        "variance": predicted.variance,
        "copied": copied.mean,
        "state": state(model),
        "loaded": str(loaded),
        "noise": likelihood.noise,
        "names": [entry[0] for entry in model.named_parameters_and_constraints()],
        "priors": [entry[0] for entry in model.named_priors()],
        "constraints": [n for n, _ in model.named_constraints()],
        "hyper": [n for n, _ in model.named_hyperparameters()],
        "tree": tree(model),
        "printed": str(model),
    }


def approximate(x: torch.Tensor, y: torch.Tensor) -> dict[str, Any]:
    model = Variational(x[:5].clone())
    likelihood = likelihoods.GaussianLikelihood()
    objective = mlls.VariationalELBO(likelihood, model, num_data=len(y))
    model.train(), likelihood.train()
    losses = steps([model, likelihood], lambda: -objective(model(x), y))
    model.eval()
    with torch.no_grad():
        return {"losses": losses, "mean": model(x).mean, "state": state(model)}


def main() -> dict[str, Any]:
    warnings.simplefilter("ignore")
    seed()
    x = torch.rand(12, 2)
    y = (x[:, 0] * 6).sin() + x[:, 1]
    return {"exact": exact(x, y), "approximate": approximate(x, y)}


if __name__ == "__main__":
    report(main())
