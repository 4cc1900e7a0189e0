"""Texts to learn from, for the examples: made ones, or a file's."""

import pathlib

import torch

LETTERS = "0123456789+= "
LENGTH = 12


def sums(count: int, draw: torch.Generator) -> torch.Tensor:
    """Lines like ``17+25=42``, in the numbers of their letters."""
    pairs = torch.randint(0, 50, (count, 2), generator=draw).tolist()
    lines = [f"{a}+{b}={a + b}".ljust(LENGTH + 1) for a, b in pairs]
    return torch.tensor([[LETTERS.index(letter) for letter in line] for line in lines])


def windows(path: pathlib.Path, length: int) -> tuple[torch.Tensor, int]:
    """A file's text in pieces of so many letters and one more, and how many letters it knows."""
    text = path.read_bytes().decode(errors="replace")
    letters = sorted(set(text))
    places = {letter: place for place, letter in enumerate(letters)}
    numbers = torch.tensor([places[letter] for letter in text])
    if len(numbers) < 20 * (length + 1):
        raise SystemExit(f"{path} has {len(numbers)} letters: give --text at least {20 * (length + 1)}")
    return numbers.unfold(0, length + 1, length), len(letters)
