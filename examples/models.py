"""Small networks, for the examples."""

import torch
from pictures import SIDE
from torch import nn


def mlp(classes: int, side: int = SIDE) -> nn.Module:
    """Two layers that see a picture at once."""
    return nn.Sequential(nn.Flatten(), nn.Linear(side * side, 128), nn.ReLU(), nn.Linear(128, classes))


def cnn(classes: int, side: int = SIDE) -> nn.Module:
    """Two convolutions, two layers."""
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(32 * (side // 4) ** 2, 128), nn.ReLU(), nn.Linear(128, classes),
    )  # fmt: skip


class Recurrent(nn.Module):
    """A GRU that reads a picture row by row."""

    def __init__(self, classes: int, side: int = SIDE, width: int = 96) -> None:
        super().__init__()
        self.reading = nn.GRU(side, width, batch_first=True)
        self.head = nn.Linear(width, classes)

    def forward(self, pictures: torch.Tensor) -> torch.Tensor:
        return self.head(self.reading(pictures.squeeze(1))[0][:, -1])


class Block(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.before, self.between = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = nn.MultiheadAttention(width, 4, batch_first=True)
        self.thinking = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        mask = nn.Transformer.generate_square_subsequent_mask(x.shape[1])
        y = self.before(x)
        x = x + self.attention(y, y, y, attn_mask=mask, need_weights=False, is_causal=True)[0]
        return x + self.thinking(self.between(x))


class Gpt(nn.Module):
    def __init__(self, letters: int, length: int, width: int = 64, blocks: int = 3) -> None:
        super().__init__()
        self.letters, self.places = nn.Embedding(letters, width), nn.Embedding(length, width)
        self.blocks = nn.ModuleList(Block(width) for _ in range(blocks))
        self.head = nn.Linear(width, letters)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.letters(tokens) + self.places(torch.arange(tokens.shape[1]))
        for block in self.blocks:
            x = block(x)
        return self.head(x)
