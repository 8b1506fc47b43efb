# SPDX-License-Identifier: BSD-3-Clause
# ruff: noqa: E402  # jax reads its settings when it is imported
"""A process on several devices for the tests of modtree.jax.shard: trains, saves and loads.

python sharded_worker.py FOLDER PROCESSES INDEX PORT DEVICES
"""

from __future__ import annotations

import json
import os
import sys

folder, processes, index, port, devices = sys.argv[1], *map(int, sys.argv[2:6])
os.environ["XLA_FLAGS"] = f"--xla_force_host_platform_device_count={devices}"
os.environ["JAX_PLATFORMS"] = "cpu"

import jax

if processes > 1:
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    jax.distributed.initialize(f"127.0.0.1:{port}", processes, index)

import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P
from jax_nets import Net, loss

import modtree as mt
import modtree.jax as mj


def host(value: object) -> np.ndarray:
    from jax.experimental import multihost_utils

    if value.is_fully_addressable or value.is_fully_replicated:
        return np.asarray(value)
    return multihost_utils.process_allgather(value, tiled=True)


RULES = {"layers.0.w": P("model", None), "layers.*.w": P(None, "model"), "**.b": P("model")}
rows = min(2, len(jax.devices()))
mesh = jax.make_mesh(
    (rows, len(jax.devices()) // rows), ("data", "model"), (jax.sharding.AxisType.Auto,) * 2
)


def new() -> Net:
    return mj.shard(Net(3, 8), mesh, RULES)


model = new()
values = np.linspace(-1, 1, 32, dtype=np.float32).reshape(4, 8)
x = jax.make_array_from_callback(
    (4, 8), NamedSharding(mesh, P("data", None)), lambda at: values[at]
)


@mj.jit
def step(model: Net, x: object) -> object:
    value, gradients = mj.value_and_grad(loss)(model, x)
    mj.apply_updates(model, {path: -0.05 * g for path, g in gradients.items()})
    mj.shard(model, mesh, RULES)
    return value


losses = [float(step(model, x)) for _ in range(3)]
shardings = {name: str(p.sharding.spec) for name, p in model.named_parameters()}
shards = model.layers[0].w.global_shards if processes == 1 else ()
parts = len({str(shard.index) for shard in shards}) or None

mj.save_sharded(model, os.path.join(folder, "safe"))
other = new()
mj.load_sharded(other, os.path.join(folder, "safe"))
same = all(
    np.array_equal(host(a), host(b)) and a.sharding.is_equivalent_to(b.sharding, a.ndim)
    for a, b in zip(mj.state(model).values(), mj.state(other).values(), strict=True)
)
orbax = None
if os.environ.get("WITH_ORBAX"):
    mj.save_sharded(model, os.path.join(folder, "orbax"), format="orbax")
    third = new()
    mj.load_sharded(third, os.path.join(folder, "orbax"))
    orbax = all(
        np.array_equal(host(a), host(b)) and a.sharding.is_equivalent_to(b.sharding, a.ndim)
        for a, b in zip(mj.state(model).values(), mj.state(third).values(), strict=True)
    )
saved = mt.load_file(os.path.join(folder, "safe"))
equal = all(np.array_equal(host(v), np.asarray(saved[k])) for k, v in model.state_dict().items())
final = {k: np.asarray(host(v)).tolist() for k, v in mj.parameters(model).items()}
if index == 0:
    with open(os.path.join(folder, "result.json"), "w") as file:
        json.dump(
            {
                "losses": losses, "shardings": shardings, "parts": parts, "same": same,
                "orbax": orbax, "equal": equal, "final": final,
                "files": sorted(os.listdir(os.path.join(folder, "safe"))),
                "dtype": str(jnp.result_type(x)),
            },
            file,
        )  # fmt: skip
