"""Thalweg sums gradients on their way through the network.

``import thalweg.torch`` registers the backend ``thalweg`` with ``torch.distributed``; this module itself
needs no torch. :class:`Switch` and :class:`Server` are the daemons, for programs that bring their own.
"""

from ._core import Server, Session, SessionError, Switch

__version__ = "0.1.0"
__all__ = ["Server", "Session", "SessionError", "Switch", "__version__"]
