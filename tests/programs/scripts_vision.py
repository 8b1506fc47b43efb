# SPDX-License-Identifier: BSD-3-Clause
"""Scripts as people keep them, for images: options, the choice of a device, loaders, schedules,
checkpoints, evaluation.
"""

from __future__ import annotations

import argparse
import io
import math
import random
import time

import torch
import torch.backends.cudnn as cudnn
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
import torch.nn.parallel
import torch.optim as optim
import torch.utils.data
import torch.utils.data.distributed
from torch.autograd import Variable
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.utils import _pair
from torch.optim.lr_scheduler import CosineAnnealingLR, LambdaLR, MultiStepLR, StepLR
from torch.utils.data import DataLoader, Dataset, Subset, random_split


def _device(args):
    if not args.no_accel and torch.cuda.is_available():
        return torch.device("cuda")
    if not args.no_accel and torch.backends.mps.is_available():
        return torch.device("mps")
    return torch.device("cpu")


class Digits(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 4, 3, 1)
        self.conv2 = nn.Conv2d(4, 6, 3, 1)
        self.dropout1 = nn.Dropout(0.0)
        self.dropout2 = nn.Dropout2d(0.0)
        self.fc1 = nn.Linear(54, 12)
        self.fc2 = nn.Linear(12, 10)

    def forward(self, x):
        x = F.relu(self.conv1(x))
        x = F.max_pool2d(F.relu(self.conv2(x)), 2)
        x = torch.flatten(self.dropout2(x), 1)
        x = self.dropout1(F.relu(self.fc1(x)))
        return F.log_softmax(self.fc2(x), dim=1)


def digits(t):
    """A classifier: train and test loops, a schedule, the best weights saved."""
    parser = argparse.ArgumentParser(description="digits")
    parser.add_argument("--batch-size", type=int, default=4, metavar="N")
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--lr", type=float, default=1.0)
    parser.add_argument("--gamma", type=float, default=0.7)
    parser.add_argument("--no-accel", action="store_true")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--log-interval", type=int, default=2)
    parser.add_argument("--save-model", action="store_true")
    args = parser.parse_args(["--save-model"])
    use_accel = not args.no_accel and torch.accelerator.is_available()
    torch.manual_seed(args.seed)
    device = torch.accelerator.current_accelerator() if use_accel else torch.device("cpu")
    train_kwargs = {"batch_size": args.batch_size}
    if use_accel:
        train_kwargs.update({"num_workers": 1, "pin_memory": True})
    data = torch.utils.data.TensorDataset(t.normal(8, 1, 10, 10), t.integers(10, 8))
    train_loader = DataLoader(data, **train_kwargs)
    test_loader = DataLoader(data, batch_size=8)
    model = t.fill(Digits()).to(device)
    optimizer = optim.Adadelta(model.parameters(), lr=args.lr)
    scheduler = StepLR(optimizer, step_size=1, gamma=args.gamma)
    for epoch in range(1, args.epochs + 1):
        model.train()
        for batch_idx, (x, target) in enumerate(train_loader):
            x, target = x.to(device), target.to(device, non_blocking=True)
            optimizer.zero_grad()
            loss = F.nll_loss(model(x), target)
            loss.backward()
            optimizer.step()
            if batch_idx % args.log_interval == 0:
                done = 100.0 * batch_idx / len(train_loader)
                assert f"{epoch} ({done:.0f}%) {loss.item():.6f}"
                t.log("loss", loss)
        model.eval()
        test_loss, correct = 0.0, 0
        with torch.no_grad():
            for x, target in test_loader:
                output = model(x.to(device))
                test_loss += F.nll_loss(output, target, reduction="sum").item()
                guess = output.argmax(dim=1, keepdim=True)
                correct += guess.eq(target.view_as(guess)).sum().item()
        t.log("test", torch.tensor([test_loss / len(test_loader.dataset), correct]))
        scheduler.step()
    if args.save_model:
        file = io.BytesIO()
        torch.save(model.state_dict(), file)
        file.seek(0)
        model.load_state_dict(torch.load(file, map_location=device))
    t.log_gradients(model)
    t.log_state(model)


class Generator(nn.Module):
    def __init__(self, nz, ngf, ngpu):
        super().__init__()
        self.ngpu = ngpu
        self.main = nn.Sequential(
            nn.ConvTranspose2d(nz, ngf * 2, 4, 1, 0, bias=False),
            nn.BatchNorm2d(ngf * 2),
            nn.ReLU(True),
            nn.ConvTranspose2d(ngf * 2, ngf, 4, 2, 1, bias=False),
            nn.BatchNorm2d(ngf),
            nn.ReLU(True),
            nn.ConvTranspose2d(ngf, 1, 4, 2, 1, bias=False),
            nn.Tanh(),
        )

    def forward(self, input):
        if input.is_cuda and self.ngpu > 1:
            return nn.parallel.data_parallel(self.main, input, range(self.ngpu))
        return self.main(input)


class Discriminator(nn.Module):
    def __init__(self, ndf):
        super().__init__()
        self.main = nn.Sequential(
            nn.Conv2d(1, ndf, 4, 2, 1, bias=False),
            nn.LeakyReLU(0.2, inplace=True),
            nn.Conv2d(ndf, ndf * 2, 4, 2, 1, bias=False),
            nn.BatchNorm2d(ndf * 2),
            nn.LeakyReLU(0.2, inplace=True),
            nn.Conv2d(ndf * 2, 1, 4, 1, 0, bias=False),
            nn.Sigmoid(),
        )

    def forward(self, input):
        return self.main(input).view(-1, 1).squeeze(1)


def _weights_init(m):
    classname = m.__class__.__name__
    if classname.find("Conv") != -1:
        torch.nn.init.normal_(m.weight, 0.0, 0.02)
    elif classname.find("BatchNorm") != -1:
        torch.nn.init.normal_(m.weight, 1.0, 0.02)
        torch.nn.init.zeros_(m.bias)


def adversaries(t):
    """Two nets against each other, each with an optimizer of its own."""
    cudnn.benchmark = True
    random.seed(0)
    torch.manual_seed(random.randint(1, 10000))
    net_g, net_d = Generator(5, 4, 0), Discriminator(4)
    net_g.apply(_weights_init)
    net_d.apply(_weights_init)
    t.fill(net_g), t.fill(net_d)
    criterion = nn.BCELoss()
    fixed_noise = t.normal(3, 5, 1, 1)
    optimizer_d = optim.Adam(net_d.parameters(), lr=0.002, betas=(0.5, 0.999))
    optimizer_g = optim.Adam(net_g.parameters(), lr=0.002, betas=(0.5, 0.999))
    for _ in range(2):
        net_d.zero_grad()
        real = t.normal(3, 1, 16, 16)
        label = torch.full((real.size(0),), 1, dtype=real.dtype, device=real.device)
        err_real = criterion(net_d(real), label)
        err_real.backward()
        fake = net_g(t.normal(3, 5, 1, 1))
        label.fill_(0)
        err_fake = criterion(net_d(fake.detach()), label)
        err_fake.backward()
        optimizer_d.step()
        net_g.zero_grad()
        label.fill_(1)
        err_g = criterion(net_d(fake), label)
        err_g.backward()
        optimizer_g.step()
        t.log("losses", err_real + err_fake, err_g)
    t.log_gradients(net_g)
    t.log("picture", net_g(fixed_noise))


class AverageMeter:
    """Keeps the last value and the mean."""

    def __init__(self, name, fmt=":f"):
        self.name, self.fmt = name, fmt
        self.sum = self.count = 0

    def update(self, val, n=1):
        self.val = val
        self.sum += val * n
        self.count += n
        self.avg = self.sum / self.count

    def __str__(self):
        return f"{self.name} {self.val:.3f} ({self.avg:.3f})"


class BasicBlock(nn.Module):
    expansion: int = 1

    def __init__(self, inplanes: int, planes: int, stride: int = 1, norm_layer=None) -> None:
        super().__init__()
        norm_layer = norm_layer or nn.BatchNorm2d
        self.conv1 = nn.Conv2d(inplanes, planes, 3, _pair(stride), padding=1, bias=False)
        self.bn1 = norm_layer(planes)
        self.relu = nn.ReLU(inplace=True)
        self.conv2 = nn.Conv2d(planes, planes, 3, padding=1, bias=False)
        self.bn2 = norm_layer(planes)
        self.downsample = None
        if stride != 1 or inplanes != planes:
            shortcut = nn.Conv2d(inplanes, planes, 1, stride, bias=False)
            self.downsample = nn.Sequential(shortcut, norm_layer(planes))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out = self.relu(self.bn1(self.conv1(x)))
        out = self.bn2(self.conv2(out))
        out += x if self.downsample is None else self.downsample(x)
        return self.relu(out)


class ResNet(nn.Module):
    def __init__(self, layers, num_classes=5, zero_init_residual=False):
        super().__init__()
        self.conv1 = nn.Conv2d(3, 4, kernel_size=7, stride=2, padding=3, bias=False)
        self.bn1 = nn.BatchNorm2d(4)
        self.maxpool = nn.MaxPool2d(kernel_size=3, stride=2, padding=1)
        self.layers = nn.Sequential(*[BasicBlock(i, o, s) for i, o, s in layers])
        self.avgpool = nn.AdaptiveAvgPool2d((1, 1))
        self.fc = nn.Linear(layers[-1][1] * BasicBlock.expansion, num_classes)
        for m in self.modules():
            if isinstance(m, nn.Conv2d):
                nn.init.kaiming_normal_(m.weight, mode="fan_out", nonlinearity="relu")
            elif isinstance(m, (_BatchNorm, nn.GroupNorm)):
                nn.init.constant_(m.weight, 1)
                nn.init.constant_(m.bias, 0)
        if zero_init_residual:
            for m in self.modules():
                if isinstance(m, BasicBlock) and m.bn2.weight is not None:
                    nn.init.constant_(m.bn2.weight, 0)

    def forward(self, x):
        x = self.maxpool(F.relu(self.bn1(self.conv1(x)), inplace=True))
        return self.fc(torch.flatten(self.avgpool(self.layers(x)), 1))


def _accuracy(output, target, topk=(1,)):
    with torch.no_grad():
        _, pred = output.topk(max(topk), 1, True, True)
        correct = pred.t().eq(target.view(1, -1).expand_as(pred.t()))
        return [
            correct[:k].reshape(-1).float().sum(0, keepdim=True).mul_(100.0 / target.size(0))
            for k in topk
        ]


def large_classifier(t):
    """The frame of a training script for many processes, which is to run in one."""
    parser = argparse.ArgumentParser(description="training")
    parser.add_argument("--arch", default="resnet", choices=["resnet"])
    parser.add_argument("-j", "--workers", default=0, type=int)
    parser.add_argument("--epochs", default=2, type=int)
    parser.add_argument("-b", "--batch-size", default=4, type=int)
    parser.add_argument("--momentum", default=0.9, type=float)
    parser.add_argument("--wd", default=1e-4, type=float)
    parser.add_argument("--world-size", default=-1, type=int)
    parser.add_argument("--rank", default=-1, type=int)
    parser.add_argument("--dist-backend", default="nccl", type=str)
    parser.add_argument("--seed", default=3, type=int)
    parser.add_argument("--gpu", default=None, type=int)
    parser.add_argument("--multiprocessing-distributed", action="store_true")
    args = parser.parse_args([])
    random.seed(args.seed)
    torch.manual_seed(args.seed)
    cudnn.deterministic = True
    cudnn.benchmark = False
    args.distributed = args.world_size > 1 or args.multiprocessing_distributed
    if args.distributed:
        dist.init_process_group(args.dist_backend, world_size=args.world_size, rank=args.rank)
    model = t.fill(ResNet([(4, 4, 1), (4, 8, 2)], zero_init_residual=True))
    if torch.cuda.is_available():
        model = torch.nn.DataParallel(model).cuda()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    criterion = nn.CrossEntropyLoss().to(device)
    optimizer = torch.optim.SGD(
        model.parameters(), 0.01, momentum=args.momentum, weight_decay=args.wd
    )
    scheduler = MultiStepLR(optimizer, milestones=[1], gamma=0.1)
    data = torch.utils.data.TensorDataset(t.normal(8, 3, 32, 32), t.integers(5, 8))
    train, val = Subset(data, range(8)), Subset(data, range(4))
    sampler = torch.utils.data.distributed.DistributedSampler(train) if args.distributed else None
    loader = torch.utils.data.DataLoader(
        train, batch_size=args.batch_size, num_workers=args.workers, pin_memory=False,
        sampler=sampler,
    )  # fmt: skip
    best = torch.zeros(1)
    for epoch in range(args.epochs):
        if args.distributed:
            sampler.set_epoch(epoch)
        meter, end = AverageMeter("Loss", ":.4e"), time.time()
        model.train()
        for images, target in loader:
            images = images.to(device, non_blocking=True)
            output = model(images)
            loss = criterion(output, target)
            acc1, acc5 = _accuracy(output, target, topk=(1, 3))
            meter.update(loss.item(), images.size(0))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            t.log("loss", loss, acc1, acc5)
        assert "Loss" in str(meter) and time.time() >= end
        model.eval()
        with torch.no_grad():
            found = [_accuracy(model(x), y)[0] for x, y in DataLoader(val, batch_size=2)]
        best = torch.max(best, torch.stack(found).mean(0))
        scheduler.step()
        if not args.multiprocessing_distributed or args.rank % torch.cuda.device_count() == 0:
            file = io.BytesIO()
            state = {
                "epoch": epoch + 1,
                "arch": args.arch,
                "state_dict": model.state_dict(),
                "best_acc1": best,
                "optimizer": optimizer.state_dict(),
                "scheduler": scheduler.state_dict(),
            }
            torch.save(state, file)
    file.seek(0)
    checkpoint = torch.load(file, map_location=device, weights_only=True)
    model.load_state_dict(checkpoint["state_dict"])
    optimizer.load_state_dict(checkpoint["optimizer"])
    scheduler.load_state_dict(checkpoint["scheduler"])
    t.log("best", checkpoint["best_acc1"])
    t.log_gradients(model)
    t.log_state(model)
    cudnn.deterministic = False  # as other programs in this process find it


class Pairs(Dataset):
    """Two pictures and whether they are of one class."""

    def __init__(self, images, labels):
        self.images, self.labels = images, labels

    def __getitem__(self, index):
        other = (index * 3 + 1) % len(self.images)
        same = (self.labels[index] == self.labels[other]).double()
        return self.images[index], self.images[other], same

    def __len__(self):
        return len(self.images)


class Siamese(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(1, 4, 3, bias=False), nn.MaxPool2d(2), nn.PReLU())
        self.head = nn.Sequential(
            nn.Linear(72, 16), nn.ReLU(inplace=True), nn.Linear(16, 1), nn.Sigmoid()
        )
        self.body.apply(self.init_weights)

    def init_weights(self, m):
        if isinstance(m, nn.Linear):
            torch.nn.init.xavier_uniform_(m.weight)
            m.bias.data.fill_(0.01)

    def forward_once(self, x):
        output = self.body(x)
        return output.view(output.size()[0], -1)

    def forward(self, a, b):
        return self.head(torch.cat((self.forward_once(a), self.forward_once(b)), 1))


def siamese(t):
    """One net for two inputs; a dataset of one's own, split at random."""
    data = Pairs(t.normal(6, 1, 8, 8), t.integers(2, 6))
    first, second = random_split(data, [4, 2], generator=torch.Generator().manual_seed(0))
    assert len(first) == 4 and len(second) == 2
    model = t.fill(Siamese())
    optimizer = optim.Adadelta(model.parameters(), lr=1.0)
    criterion = nn.BCELoss()
    for a, b, same in DataLoader(data, batch_size=3, shuffle=False, drop_last=True):
        optimizer.zero_grad()
        outputs = model(a, b).squeeze()
        loss = criterion(outputs, same)
        loss.backward()
        optimizer.step()
        pred = torch.where(outputs > 0.5, 1, 0)
        t.log("loss", loss, pred.eq(same.view_as(pred)).sum())
    t.log_gradients(model)


class SuperResolution(nn.Module):
    def __init__(self, upscale_factor):
        super().__init__()
        self.relu = nn.ReLU()
        self.conv1 = nn.Conv2d(1, 6, (5, 5), (1, 1), (2, 2))
        self.conv2 = nn.Conv2d(6, upscale_factor**2, (3, 3), (1, 1), (1, 1))
        self.pixel_shuffle = nn.PixelShuffle(upscale_factor)
        torch.nn.init.orthogonal_(self.conv1.weight, torch.nn.init.calculate_gain("relu"))
        torch.nn.init.orthogonal_(self.conv2.weight)

    def forward(self, x):
        return self.pixel_shuffle(self.conv2(self.relu(self.conv1(x))))


def super_resolution(t):
    """More pixels; the whole model is saved."""
    model = t.fill(SuperResolution(upscale_factor=2))
    optimizer = optim.Adam(model.parameters(), lr=1e-3)
    criterion = nn.MSELoss()
    scheduler = CosineAnnealingLR(optimizer, T_max=3)
    epoch_loss = 0.0
    for _ in range(3):
        small, large = t.normal(2, 1, 5, 5), t.normal(2, 1, 10, 10)
        optimizer.zero_grad()
        loss = criterion(model(small), large)
        epoch_loss += loss.item()
        loss.backward()
        optimizer.step()
        scheduler.step()
        t.log("psnr", 10 * torch.log10(1 / loss.detach()), torch.tensor(epoch_loss))
    t.log_gradients(model)
    t.log("rate", torch.tensor(scheduler.get_last_lr()))


class ConvLayer(torch.nn.Module):
    def __init__(self, in_channels, out_channels, kernel_size, stride, upsample=None):
        super().__init__()
        self.upsample = upsample
        self.reflection_pad = torch.nn.ReflectionPad2d(kernel_size // 2)
        self.conv2d = torch.nn.Conv2d(in_channels, out_channels, kernel_size, stride)

    def forward(self, x):
        if self.upsample:
            x = torch.nn.functional.interpolate(x, mode="nearest", scale_factor=self.upsample)
        return self.conv2d(self.reflection_pad(x))


class TransformerNet(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1, self.in1 = ConvLayer(3, 4, 9, 1), nn.InstanceNorm2d(4, affine=True)
        self.conv2, self.in2 = ConvLayer(4, 8, 3, 2), nn.InstanceNorm2d(8, affine=True)
        self.res, self.in3 = ConvLayer(8, 8, 3, 1), nn.InstanceNorm2d(8, affine=True)
        self.deconv = ConvLayer(8, 3, 3, 1, upsample=2)
        self.relu = torch.nn.ReLU()

    def forward(self, X):
        y = self.relu(self.in1(self.conv1(X)))
        y = self.relu(self.in2(self.conv2(y)))
        y = self.in3(self.res(y)) + y
        return self.deconv(y)


def _gram(y):
    b, ch, h, w = y.size()
    features = y.view(b, ch, w * h)
    return features.bmm(features.transpose(1, 2)) / (ch * h * w)


def style(t):
    """Pictures in the style of another: losses on what a fixed net sees."""
    net = t.fill(TransformerNet())
    seen = t.fill(nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU()))
    for p in seen.parameters():
        p.requires_grad = False
    optimizer = optim.Adam(net.parameters(), 1e-3)
    mse = torch.nn.MSELoss()
    style = t.normal(1, 3, 12, 12).repeat(2, 1, 1, 1)
    wanted = [_gram(y) for y in (seen(style),)]
    for _ in range(2):
        x = t.normal(2, 3, 12, 12)
        optimizer.zero_grad()
        y = net(x)
        features_y, features_x = seen(y), seen(Variable(x))
        loss = 1e2 * mse(features_y, features_x)
        loss = loss + 1e3 * sum(mse(_gram(features_y), g[:2, :, :]) for g in wanted)
        loss.backward()
        optimizer.step()
        t.log("loss", loss)
    t.log("picture", net(x).clamp(0, 255).detach())
    t.log_gradients(net)
    net.eval().cpu()


class VAE(nn.Module):
    def __init__(self, noise):
        super().__init__()
        self.noise = noise
        self.fc1, self.fc21, self.fc22 = nn.Linear(16, 8), nn.Linear(8, 3), nn.Linear(8, 3)
        self.fc3, self.fc4 = nn.Linear(3, 8), nn.Linear(8, 16)

    def reparameterize(self, mu, logvar):
        std = torch.exp(0.5 * logvar)
        eps = torch.randn_like(std)
        return mu + self.noise(*eps.shape) * std

    def forward(self, x):
        h = F.relu(self.fc1(x.view(-1, 16)))
        mu, logvar = self.fc21(h), self.fc22(h)
        z = self.reparameterize(mu, logvar)
        return torch.sigmoid(self.fc4(F.relu(self.fc3(z)))), mu, logvar


def autoencoder(t):
    """Pictures of a code that is drawn."""
    model = t.fill(VAE(t.normal))
    optimizer = optim.Adam(model.parameters(), lr=1e-3)
    warmup = LambdaLR(optimizer, lambda epoch: min(1.0, (epoch + 1) / 3))
    for _ in range(3):
        x = t.uniform(4, 1, 4, 4)
        recon, mu, logvar = model(x)
        fit = F.binary_cross_entropy(recon, x.view(-1, 16), reduction="sum")
        apart = -0.5 * torch.sum(1 + logvar - mu.pow(2) - logvar.exp())
        optimizer.zero_grad()
        (fit + apart).backward()
        nn.utils.clip_grad_norm_(model.parameters(), max_norm=math.pi)
        optimizer.step()
        warmup.step()
        t.log("loss", fit, apart)
    n = min(x.size(0), 2)
    t.log("comparison", torch.cat([x[:n], recon.view(4, 1, 4, 4)[:n]]))
    t.log_gradients(model)


def forward_forward(t):
    """Layers that learn one by one, each by a goodness of its own."""

    class Layer(nn.Linear):
        def __init__(self, in_features, out_features, bias=True, device=None, dtype=None):
            super().__init__(in_features, out_features, bias, device, dtype)
            self.relu = torch.nn.ReLU()
            self.threshold = 2.0

        def forward(self, x):
            x_direction = x / (x.norm(2, 1, keepdim=True) + 1e-4)
            return self.relu(torch.mm(x_direction, self.weight.T) + self.bias.unsqueeze(0))

        def train_on(self, x_pos, x_neg):
            for _ in range(2):
                g_pos = self.forward(x_pos).pow(2).mean(1)
                g_neg = self.forward(x_neg).pow(2).mean(1)
                both = torch.cat([-g_pos + self.threshold, g_neg - self.threshold])
                loss = torch.log(1 + torch.exp(both)).mean()
                self.opt.zero_grad()
                loss.backward()
                self.opt.step()
                t.log("loss", loss)
            return self.forward(x_pos).detach(), self.forward(x_neg).detach()

    layers = [Layer(6, 8), Layer(8, 8)]
    pos, neg = t.normal(5, 6), t.normal(5, 6)
    for layer in layers:
        t.fill(layer)
        layer.opt = optim.Adam(layer.parameters(), lr=0.03)
        pos, neg = layer.train_on(pos, neg)
        t.log_gradients(layer)
    t.log("goodness", pos.pow(2).mean(1), neg.pow(2).mean(1))
