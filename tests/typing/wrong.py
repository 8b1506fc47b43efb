# SPDX-License-Identifier: BSD-3-Clause
"""Wrong programs; each line says which error is found there."""

import modtree as mt
import modtree.nn.functional as F
from modtree import Tensor, nn, optim

x = mt.randn(2, 3)
mt.exp("x")  # error: arg-type
mt.exp(x, x, x)  # error: call-arg
mt.exp(inputs=x)  # error: call-arg
mt.no_such_function(x)  # error: attr-defined
x.no_such_method()  # error: attr-defined
x.sum(axis="rows")  # error: arg-type
x.reshape("a")  # error: arg-type
x.to(3)  # error: call-overload
x + "text"  # error: operator
"text" @ x  # error: operator
x.is_leaf = True  # error: misc
x.requires_grad = None  # error: assignment
print(x.device.kind)  # error: attr-defined
print(mt.float32.bits)  # error: attr-defined
n: int = x.sum()  # error: assignment
s: str = x.shape  # error: assignment
x.grad.sum()  # error: union-attr
mt.zeros(2, 3, dtypes=mt.float32)  # error: call-arg
mt.zeros("2")  # error: arg-type
mt.cat(x)  # error: arg-type
mt.compare({}, 3)  # error: arg-type
mt.compare({}, {}).no_such_list()  # error: attr-defined
mt.summary(nn.ReLU()).no_such_rows()  # error: attr-defined
mt.check(nn.ReLU()).no_such_findings()  # error: attr-defined
mt.load_file("a.safetensors").no_such_method()  # error: attr-defined
mt.matmul(x)  # error: call-arg
x.matmul(2)  # error: arg-type
x.add_(x, beta=2)  # error: call-arg
F.relu(x, inplace="yes")  # error: arg-type
F.cross_entropy(x)  # error: call-arg
F.conv2d(x, x, stride="2")  # error: arg-type
F.no_such_loss(x, x)  # error: attr-defined
nn.Linear(3)  # error: call-arg
nn.Linear("3", 4)  # error: arg-type
nn.NoSuchLayer()  # error: attr-defined
nn.Linear(3, 4, biass=True)  # error: call-arg
net = nn.Linear(3, 4)
net.bias.nothing()  # error: union-attr
net.train("yes")  # error: arg-type
net.load_state_dict([1, 2])  # error: call-overload
net.load_state_dict()  # error: call-overload
net.register_forward_hook(3)  # error: arg-type
optim.SGD()  # error: call-arg
optim.SGD(net.parameters(), lr="fast")  # error: arg-type
optim.Adam(net.parameters(), learning_rate=1e-3)  # error: call-arg
y: Tensor = net.weight.grad  # error: assignment
mt.manual_seed()  # error: call-arg
mt.save()  # error: call-arg
count: str = x.sum().item()  # error: assignment
F.max_pool2d(x, "2")  # error: arg-type
x.as_strided(2, "a")  # error: arg-type
