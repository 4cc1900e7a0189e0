"""Ctrl-C while the main thread waits in C++.

Python handles signals on the main thread, between two steps of the interpreter. In a backward pass of DDP that thread
waits in C++ for the sums of its gradients, and handles nothing until they end. So the thread of a group learns of the
signal as well: the system writes a byte to a socket. If the main thread takes no step of the interpreter for a while,
the group is aborted. That ends the wait, and then Python raises ``KeyboardInterrupt``.

Programs with a handler of their own for SIGINT decide themselves when they end, and nothing is done for these.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import socket
import threading
import time

# Time that the main thread has to handle the signal.
_HANDLED_WITHIN_S = 0.3


class Interrupts:
    """Notices Ctrl-C, and whether the main thread has handled it."""

    def __init__(self) -> None:
        self._receiver, self._sender = socket.socketpair()
        for end in (self._receiver, self._sender):
            end.setblocking(False)
        # Where the system wrote before.
        self._before = -1
        self._users = 0
        self._noticed_at: float | None = None
        self._step = threading.Event()
        self._on_step = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)(self._note_step)

    def begin(self) -> None:
        """A group begins. Python lets only the main thread choose the socket."""
        self._users += 1
        if threading.current_thread() is threading.main_thread():
            own = self._sender.fileno()
            before = signal.set_wakeup_fd(own, warn_on_full_buffer=False)
            self._before = self._before if before == own else before

    def end(self) -> None:
        """A group ends. After the last one, the socket is what it was before the first."""
        self._users -= 1
        if self._users == 0 and threading.current_thread() is threading.main_thread():
            self._restore()

    # spec: E-02
    def is_unhandled(self) -> bool:
        """Whether Ctrl-C came, would raise ``KeyboardInterrupt``, and the main thread has taken no step since."""
        now = time.monotonic()
        if self._has_come() and self._noticed_at is None:
            self._step.clear()
            self._noticed_at = now
            # The main thread calls it between two steps of the interpreter.
            ctypes.pythonapi.Py_AddPendingCall(self._on_step, None)
        if self._noticed_at is None:
            return False
        if self._step.is_set():
            self._noticed_at = None
            return False
        return now - self._noticed_at >= _HANDLED_WITHIN_S

    def _has_come(self) -> bool:
        try:
            numbers = self._receiver.recv(64)
        except BlockingIOError:
            return False
        if self._before >= 0:
            # The former listener gets them as well.
            with contextlib.suppress(OSError):
                os.write(self._before, numbers)
        return signal.SIGINT in numbers and signal.getsignal(signal.SIGINT) is signal.default_int_handler

    def _note_step(self, _: object) -> int:
        self._step.set()
        return 0

    def _restore(self) -> None:
        own = self._sender.fileno()
        found = signal.set_wakeup_fd(self._before)
        if found != own:
            # Another program part has chosen one meanwhile.
            signal.set_wakeup_fd(found)

    def _leave_to_parent(self) -> None:
        # Signals of a forked process would reach its parent.
        with contextlib.suppress(ValueError):
            self._restore()


#: Ctrl-C of this process.
process = Interrupts()

os.register_at_fork(after_in_child=process._leave_to_parent)
