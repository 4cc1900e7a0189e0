"""Texts to learn from, for the examples: made ones, or a file's."""

import pathlib

import torch

ALPHABET = "0123456789+= "
LENGTH = 12


def sums(count: int, draw: torch.Generator) -> torch.Tensor:
    """Lines like ``17+25=42``, as the numbers of their characters."""
    pairs = torch.randint(0, 50, (count, 2), generator=draw).tolist()
    lines = [f"{a}+{b}={a + b}".ljust(LENGTH + 1) for a, b in pairs]
    return torch.tensor([[ALPHABET.index(character) for character in line] for line in lines])


def windows(path: pathlib.Path, length: int) -> tuple[torch.Tensor, int]:
    """A file's text in pieces of `length` characters and one more, and the number of different characters."""
    text = path.read_bytes().decode(errors="replace")
    alphabet = sorted(set(text))
    places = {character: place for place, character in enumerate(alphabet)}
    numbers = torch.tensor([places[character] for character in text])
    if len(numbers) < 20 * (length + 1):
        raise SystemExit(f"{path} has {len(numbers)} characters: give --text at least {20 * (length + 1)}")
    return numbers.unfold(0, length + 1, length), len(alphabet)
