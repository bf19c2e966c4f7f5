"""Vision models that the library does not have: ViT, ConvNeXt, RetinaNet. Images are (batch, 3, height, width)."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice, pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from course_utils.networks import Bottleneck, resnet50


class SelfAttention(nn.Module):
    """Attention of all tokens to all, (batch, tokens, hidden) to the same."""

    def __init__(self, hidden: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.qkv, self.project = nn.Linear(hidden, 3 * hidden), nn.Linear(hidden, hidden)

    def forward(self, x: Tensor) -> Tensor:
        """(batch, tokens, hidden) to the same."""
        q, k, v = (part.unflatten(2, (self.heads, -1)).transpose(1, 2) for part in self.qkv(x).chunk(3, 2))
        return self.project(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))  # type: ignore[no-any-return]


def feed_forward(hidden: int, inner: int) -> nn.Sequential:
    """Two linear layers with GELU between them."""
    return nn.Sequential(nn.Linear(hidden, inner), nn.GELU(), nn.Linear(inner, hidden))


class ViTLayer(nn.Module):
    """Norm, attention, norm, feed-forward, each half added to what entered it."""

    def __init__(self, hidden: int, heads: int) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(hidden, 1e-6), nn.LayerNorm(hidden, 1e-6)
        self.attention, self.block = SelfAttention(hidden, heads), feed_forward(hidden, 4 * hidden)

    def forward(self, x: Tensor) -> Tensor:
        """(batch, tokens, hidden) to the same."""
        x = x + self.attention(self.norm1(x))
        return x + self.block(self.norm2(x))  # type: ignore[no-any-return]


class ViT(nn.Module):
    """Dosovitskiy and others, "An Image is Worth 16x16 Words" (2020): trained at 224 × 224.

    At another size its positions are interpolated, as in fine-tuning at a higher resolution.
    """

    def __init__(self, hidden: int, layers: int, heads: int, patch: int, classes: int = 1000) -> None:
        super().__init__()
        self.side = 224 // patch
        self.patches = nn.Conv2d(3, hidden, patch, patch)
        self.token = nn.Parameter(torch.zeros(1, 1, hidden))
        self.positions = nn.Parameter(torch.zeros(1, self.side**2 + 1, hidden))
        self.layers = nn.ModuleList(ViTLayer(hidden, heads) for _ in range(layers))
        self.norm, self.head = nn.LayerNorm(hidden, 1e-6), nn.Linear(hidden, classes)

    def forward(self, x: Tensor) -> Tensor:
        """(batch, classes)."""
        maps = self.patches(x)
        places: Tensor = self.positions
        size = maps.shape[2:]
        if tuple(size) != (self.side, self.side):
            grid = places[:, 1:].transpose(1, 2).unflatten(2, (self.side, self.side)).float()
            grid = F.interpolate(grid, tuple(size), mode="bicubic").to(places.dtype)
            places = torch.cat((places[:, :1], grid.flatten(2).transpose(1, 2)), 1)
        x = torch.cat((self.token.expand(maps.shape[0], -1, -1), maps.flatten(2).transpose(1, 2)), 1) + places
        for layer in self.layers:
            x = layer(x)
        return self.head(self.norm(x)[:, 0])  # type: ignore[no-any-return]


class ChannelNorm(nn.LayerNorm):
    """Layer norm over the channels of (batch, channels, height, width)."""

    def forward(self, x: Tensor) -> Tensor:
        """(batch, channels, height, width) to the same."""
        return super().forward(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)


class ConvNeXtBlock(nn.Module):
    """A 7 × 7 convolution of each channel by itself, then two linear layers at each place."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.convolution = nn.Conv2d(channels, channels, 7, padding=3, groups=channels)
        self.norm, self.block = nn.LayerNorm(channels, 1e-6), feed_forward(channels, 4 * channels)
        self.scale = nn.Parameter(torch.full((channels,), 1e-6))

    def forward(self, x: Tensor) -> Tensor:
        """(batch, channels, height, width) to the same."""
        y = self.block(self.norm(self.convolution(x).permute(0, 2, 3, 1)))
        return x + (self.scale * y).permute(0, 3, 1, 2)  # type: ignore[no-any-return]


class ConvNeXt(nn.Module):
    """Liu and others, "A ConvNet for the 2020s" (2022). Left out: stochastic depth."""

    def __init__(self, depths: Sequence[int], widths: Sequence[int], classes: int = 1000) -> None:
        super().__init__()
        stem = nn.Sequential(nn.Conv2d(3, widths[0], 4, 4), ChannelNorm(widths[0], 1e-6))
        between = [
            nn.Sequential(ChannelNorm(before, 1e-6), nn.Conv2d(before, after, 2, 2))
            for before, after in pairwise(widths)
        ]
        self.down = nn.ModuleList([stem, *between])
        self.depths = tuple(depths)
        self.blocks = nn.ModuleList(
            ConvNeXtBlock(width) for depth, width in zip(depths, widths, strict=True) for _ in range(depth)
        )
        self.norm, self.head = nn.LayerNorm(widths[-1], 1e-6), nn.Linear(widths[-1], classes)

    def forward(self, x: Tensor) -> Tensor:
        """(batch, classes)."""
        blocks = iter(self.blocks)
        for down, depth in zip(self.down, self.depths, strict=True):
            x = down(x)
            for block in islice(blocks, depth):
                x = block(x)
        return self.head(self.norm(x.mean((2, 3))))  # type: ignore[no-any-return]


class FrozenNorm(nn.Module):
    """A batch norm that is no longer trained: a scale and a shift, which are no parameters."""

    scale: Tensor
    shift: Tensor

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.register_buffer("scale", torch.ones(channels, 1, 1))
        self.register_buffer("shift", torch.zeros(channels, 1, 1))

    def forward(self, x: Tensor) -> Tensor:
        """(batch, channels, height, width) to the same."""
        return x * self.scale + self.shift


def _frozen(module: nn.Module) -> None:
    for name, child in list(module.named_children()):
        if isinstance(child, nn.BatchNorm2d):
            setattr(module, name, FrozenNorm(child.num_features))
        else:
            _frozen(child)


class RetinaNet(nn.Module):
    """Lin and others, "Focal Loss for Dense Object Detection" (2017), on ResNet-50, as torchvision has it.

    Its stem and first stage are frozen, as are its batch norms. `forward` gives a loss of classes and boxes against
    zeros: which anchors meet which objects is left out, and with it the temporaries of that matching.
    """

    ANCHORS, CLASSES = 9, 91

    def __init__(self) -> None:
        super().__init__()
        body = resnet50()
        _frozen(body)
        parts = dict(body.named_children())
        blocks = {name: part for name, part in parts.items() if isinstance(part, Bottleneck)}
        self.stem = nn.Sequential(*(part for name, part in list(parts.items())[: list(parts).index("conv2_1")]))
        self.blocks = nn.ModuleList(blocks.values())
        # After the last block of each stage its maps are looked at; those of the first stage are not.
        self.ends = [int(name[4]) if name[4] != after[4:5] else 0 for name, after in pairwise([*blocks, "conv6"])]
        frozen = [self.stem, *(part for name, part in blocks.items() if name.startswith("conv2"))]
        for part in frozen:
            part.requires_grad_(False)
        self.inner = nn.ModuleList(nn.Conv2d(n, 256, 1) for n in (512, 1024, 2048))
        self.outer = nn.ModuleList(nn.Conv2d(256, 256, 3, padding=1) for _ in range(3))
        self.coarse = nn.ModuleList(nn.Conv2d(256, 256, 3, 2, 1) for _ in range(2))
        self.classes, self.boxes = self._head(self.CLASSES), self._head(4)

    def _head(self, outputs: int) -> nn.Sequential:
        towers = [layer for _ in range(4) for layer in (nn.Conv2d(256, 256, 3, padding=1), nn.ReLU())]
        return nn.Sequential(*towers, nn.Conv2d(256, self.ANCHORS * outputs, 3, padding=1))

    def forward(self, x: Tensor, labels: Tensor) -> Tensor:
        """The loss of images; `labels` stand for what is in them and are not read."""
        x = self.stem(x)
        found = []
        for block, stage in zip(self.blocks, self.ends, strict=True):
            x = block(x)
            if stage > 2:
                found.append(x)
        maps: list[Tensor] = []
        above: Tensor | None = None
        for lateral, outer, own in reversed(list(zip(self.inner, self.outer, found, strict=True))):
            above = lateral(own) if above is None else lateral(own) + F.interpolate(above, own.shape[2:])
            maps.insert(0, outer(above))
        maps.append(self.coarse[0](maps[-1]))
        maps.append(self.coarse[1](F.relu(maps[-1])))
        classes = torch.cat([self.classes(one).flatten(1) for one in maps], 1)
        boxes = torch.cat([self.boxes(one).flatten(1) for one in maps], 1)
        return F.softplus(classes.float()).mean() + boxes.float().abs().mean()
