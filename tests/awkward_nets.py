"""Small networks that each have one feature which makes memory hard to predict: branches, shared weights, in place."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class Encoder(nn.Module):
    """One encoder block (attention, then two dense layers, each added to its input) and a head on the mean token."""

    def __init__(self, width: int, heads: int, classes: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1 = nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width)
        self.projection = nn.Linear(width, width)
        self.norm2 = nn.LayerNorm(width)
        self.fc1 = nn.Linear(width, 4 * width)
        self.gelu = nn.GELU()
        self.fc2 = nn.Linear(4 * width, width)
        self.head = nn.Linear(width, classes)

    def forward(self, tokens: Tensor) -> Tensor:
        """(batch, tokens, width) to (batch, classes)."""
        batch, length, width = tokens.shape
        qkv = self.qkv(self.norm1(tokens)).view(batch, length, 3, self.heads, width // self.heads)
        query, key, value = qkv.permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(query, key, value)
        tokens = tokens + self.projection(mixed.transpose(1, 2).reshape(batch, length, width))
        tokens = tokens + self.fc2(self.gelu(self.fc1(self.norm2(tokens))))
        scores: Tensor = self.head(tokens.mean(dim=1))
        return scores


def encoder_block(width: int = 64, heads: int = 4, classes: int = 10) -> Encoder:
    """One transformer encoder block with a head: input (tokens, width), 50,634 parameters by default."""
    return Encoder(width, heads, classes)


class SharedWeights(nn.Module):
    """A layer applied twice, and a second layer that owns a bias but borrows the first one's weight."""

    def __init__(self, width: int, classes: int) -> None:
        super().__init__()
        self.shared = nn.Linear(width, width)
        self.tied = nn.Linear(width, width)
        self.tied.weight = self.shared.weight
        self.head = nn.Linear(width, classes)

    def forward(self, features: Tensor) -> Tensor:
        """(batch, width) to (batch, classes)."""
        features = torch.relu(self.shared(features))
        features = torch.relu(self.shared(features))
        features = torch.relu(self.tied(features))
        scores: Tensor = self.head(features)
        return scores


def shared_weights(width: int = 64, classes: int = 10) -> SharedWeights:
    """One 64×64 weight used three times, through two layers: input (width,), 4,874 parameters by default.

    The shared weight is counted once, as `Module.parameters()` does.
    """
    return SharedWeights(width, classes)


class InplaceCNN(nn.Module):
    """Convolutions whose ReLUs, and whose residual addition, overwrite their input."""

    def __init__(self, channels: int, width: int, classes: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels, width, 3, padding=1)
        self.relu1 = nn.ReLU(inplace=True)
        self.conv2 = nn.Conv2d(width, width, 3, padding=1)
        self.relu2 = nn.ReLU(inplace=True)
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.fc = nn.Linear(width, classes)

    def forward(self, pictures: Tensor) -> Tensor:
        """(batch, channels, height, width) to (batch, classes)."""
        maps = self.relu1(self.conv1(pictures))
        out = self.conv2(maps)
        out += maps
        out = self.relu2(out)
        scores: Tensor = self.fc(self.pool(out).flatten(1))
        return scores


def inplace_cnn(channels: int = 3, width: int = 16, classes: int = 10) -> InplaceCNN:
    """A small residual network that works in place: input channels×height×width, 2,938 parameters by default."""
    return InplaceCNN(channels, width, classes)


class BranchingCNN(nn.Module):
    """Two branches over one map, concatenated; the map has three users, so it dies later than in a chain."""

    def __init__(self, channels: int, classes: int) -> None:
        super().__init__()
        self.stem = nn.Conv2d(channels, 16, 3, padding=1)
        self.narrow = nn.Conv2d(16, 8, 1)
        self.wide = nn.Conv2d(16, 8, 5, padding=2)
        self.relu = nn.ReLU()
        self.pool = nn.MaxPool2d(2)
        self.join = nn.Conv2d(16, 16, 3, padding=1)
        self.average = nn.AdaptiveAvgPool2d(1)
        self.fc = nn.Linear(16, classes)

    def forward(self, pictures: Tensor) -> Tensor:
        """(batch, channels, height, width) to (batch, classes)."""
        maps = torch.relu(self.stem(pictures))
        both = self.relu(torch.cat([self.narrow(maps), self.wide(maps)], dim=1))
        out = self.join(self.pool(both)) + self.pool(maps)
        scores: Tensor = self.fc(self.average(out).flatten(1))
        return scores


def branching_cnn(channels: int = 3, classes: int = 10) -> BranchingCNN:
    """A small network with branches, a concatenation and a residual sum: input channels×height×width.

    6,282 parameters by default; height and width are at least 2.
    """
    return BranchingCNN(channels, classes)
