"""Draws quality against loss as SVG."""

from __future__ import annotations

import math
import statistics
import typing
from xml.sax.saxutils import escape

# For every mode, losses with the qualities of the seeds.
Curves = typing.Mapping[str, typing.Sequence[tuple[float, typing.Sequence[float]]]]

# From a loss or a quality to a coordinate.
Scale = typing.Callable[[float], float]
_WIDTH, _HEIGHT = 640, 400
_LEFT, _RIGHT, _TOP, _BOTTOM = 70, 20, 40, 50
# Also people who see no red or no green can distinguish them.
_COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7")


def svg(curves: Curves, lossless: float, target: float, title: str) -> str:
    """Lines through the means, bars from the worst seed to the best. Losses lie on a logarithmic scale."""
    losses = sorted({loss for curve in curves.values() for loss, _ in curve})
    qualities = [q for curve in curves.values() for _, all in curve for q in all if math.isfinite(q)]
    to_x, to_y = _across(losses), _up([*qualities, lossless, target])
    parts = [_label(_WIDTH / 2, 22, title, "middle", 15), *_axes(losses, to_x, to_y)]
    right = _WIDTH - _RIGHT
    # Curves come close to the first on the left, and to the other on the right.
    parts.append(_label(right - 4, to_y(lossless) - 4, "without loss", "end", 11))
    parts.append(_label(_LEFT + 6, to_y(target) - 4, "least that is the same", "start", 11))
    for quality, dashes in ((lossless, "none"), (target, "5 4")):
        y = to_y(quality)
        parts.append(f'<path d="M{_LEFT} {y:.1f}H{right}" stroke="#777" stroke-dasharray="{dashes}"/>')
    for at, (mode, curve) in enumerate(curves.items()):
        colour = _COLOURS[at % len(_COLOURS)]
        parts += _curve(curve, colour, to_x, to_y)
        y = _HEIGHT - _BOTTOM - 14 - 18 * at
        parts.append(f'<circle cx="{_LEFT + 14}" cy="{y - 4}" r="4" fill="{colour}"/>')
        parts.append(_label(_LEFT + 24, y, mode, "start", 12))
    body = "\n".join(parts)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="{_HEIGHT}" '
        f'viewBox="0 0 {_WIDTH} {_HEIGHT}" font-family="sans-serif">\n'
        f'<rect width="100%" height="100%" fill="white"/>\n{body}\n</svg>\n'
    )


def _across(losses: typing.Sequence[float]) -> typing.Callable[[float], float]:
    low, high = math.log(losses[0]), math.log(losses[-1])
    width = _WIDTH - _LEFT - _RIGHT - 40
    return lambda loss: _LEFT + 20 + width * ((math.log(loss) - low) / (high - low) if high > low else 0.5)


def _up(qualities: typing.Sequence[float]) -> typing.Callable[[float], float]:
    low, high = min(qualities), max(qualities)
    margin = 0.08 * (high - low) or 0.5
    scale = (_HEIGHT - _TOP - _BOTTOM) / (high - low + 2 * margin)
    return lambda quality: _HEIGHT - _BOTTOM - (quality - low + margin) * scale


def _axes(losses: typing.Sequence[float], to_x: Scale, to_y: Scale) -> list[str]:
    bottom, right = _HEIGHT - _BOTTOM, _WIDTH - _RIGHT
    parts = [f'<path d="M{_LEFT} {_TOP}V{bottom}H{right}" fill="none" stroke="black"/>']
    for loss in losses:
        x = to_x(loss)
        parts.append(f'<path d="M{x:.1f} {bottom}v5" stroke="black"/>')
        parts.append(_label(x, bottom + 18, f"{100 * loss:.3g}%", "middle", 11))
    # The scale is linear: two of its points tell where the quality of a height is.
    per_pixel = 1 / (to_y(0) - to_y(1))
    lowest = (to_y(0) - bottom) * per_pixel
    for quality in _round_numbers(lowest, lowest + (bottom - _TOP) * per_pixel):
        y = to_y(quality)
        parts.append(f'<path d="M{_LEFT} {y:.1f}h-5" stroke="black"/>')
        parts.append(_label(_LEFT - 8, y + 4, f"{quality:.6g}", "end", 11))
    parts.append(_label((_LEFT + right) / 2, _HEIGHT - 12, "packets of gradients lost", "middle", 12))
    parts.append(
        f'<text x="16" y="{(_TOP + bottom) / 2}" text-anchor="middle" font-size="12" '
        f'transform="rotate(-90 16 {(_TOP + bottom) / 2})">quality</text>'
    )
    return parts


def _round_numbers(low: float, high: float) -> list[float]:
    """From four to eleven of them between two numbers."""
    step = 10.0 ** math.floor(math.log10((high - low) / 4))
    step *= next(times for times in (5, 2, 1) if (high - low) / (times * step) >= 4)
    return [number * step for number in range(math.ceil(low / step), math.floor(high / step) + 1)]


def _curve(
    curve: typing.Sequence[tuple[float, typing.Sequence[float]]], colour: str, to_x: Scale, to_y: Scale
) -> list[str]:
    finite = [(loss, [q for q in all if math.isfinite(q)]) for loss, all in curve]
    shown = [(to_x(loss), all) for loss, all in finite if all]
    line = " ".join(f"{x:.1f},{to_y(statistics.fmean(all)):.1f}" for x, all in shown)
    parts = [f'<polyline points="{line}" fill="none" stroke="{colour}" stroke-width="2"/>']
    for x, all in shown:
        parts.append(f'<path d="M{x:.1f} {to_y(min(all)):.1f}V{to_y(max(all)):.1f}" stroke="{colour}"/>')
        parts.append(f'<circle cx="{x:.1f}" cy="{to_y(statistics.fmean(all)):.1f}" r="4" fill="{colour}"/>')
    return parts


def _label(x: float, y: float, text: str, anchor: str, size: int) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="{size}">{escape(text)}</text>'
