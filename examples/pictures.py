"""Pictures to learn from, for the examples: made ones, or MNIST's files."""

import gzip
import pathlib
import struct

import torch

SIDE = 28
Pictures = tuple[torch.Tensor, torch.Tensor]


def given(directory: pathlib.Path | None) -> tuple[Pictures, Pictures]:
    """To learn from and to test with: MNIST's, or made ones where there is no directory."""
    if directory:
        return mnist(directory, "train"), mnist(directory, "t10k")
    return made_pictures(8_000, 1), made_pictures(1_000, 2)


def made_pictures(count: int, seed: int) -> Pictures:
    """Bars in four directions, at places of their own."""
    draw = torch.Generator().manual_seed(seed)
    labels = torch.randint(0, 4, (count,), generator=draw)
    offsets = torch.randint(-6, 7, (count, 1, 1), generator=draw)
    rows = torch.arange(SIDE).view(1, -1, 1).expand(count, -1, SIDE)
    columns = torch.arange(SIDE).view(1, 1, -1).expand(count, SIDE, -1)
    middle = SIDE // 2 + offsets
    distances = torch.stack(
        [rows - middle, columns - middle, rows - columns - offsets, rows + columns - SIDE - offsets], 1
    )
    chosen = distances[torch.arange(count), labels]
    pictures = (chosen.abs() <= 2).float() + torch.randn(chosen.shape, generator=draw) * 0.5
    return pictures.unsqueeze(1), labels


def read_idx(directory: pathlib.Path, name: str) -> torch.Tensor:
    """A file in MNIST's format, packed or not."""
    for path in (directory / name, directory / f"{name}.gz"):
        if path.exists():
            raw = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
            dimensions = raw[3]
            shape = struct.unpack(f">{dimensions}I", raw[4 : 4 + 4 * dimensions])
            values = torch.frombuffer(bytearray(raw[4 + 4 * dimensions :]), dtype=torch.uint8)
            return values.view(*shape)
    raise SystemExit(f"{directory} has neither {name} nor {name}.gz: give MNIST's files with --data")


def mnist(directory: pathlib.Path, part: str) -> Pictures:
    """Pictures and their labels; part is train or t10k."""
    pictures = read_idx(directory, f"{part}-images-idx3-ubyte").float().div(255).unsqueeze(1)
    return pictures, read_idx(directory, f"{part}-labels-idx1-ubyte").long()
