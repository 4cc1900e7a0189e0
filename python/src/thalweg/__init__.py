"""Thalweg sums gradients inside the network.

``import thalweg.torch`` registers the backend ``thalweg`` with ``torch.distributed``; this module itself
needs no torch. :class:`Switch` and :class:`Server` are the daemons, for programs that start their own.
:mod:`thalweg.tolerance` measures how much loss of gradients a model tolerates.
"""

from ._core import Server, SessionError, Switch

__version__ = "0.1.0"
__all__ = ["Server", "SessionError", "Switch", "__version__"]
