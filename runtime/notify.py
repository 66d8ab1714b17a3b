"""What the service manager is told: systemd's notification protocol over its datagram socket.

Source: sd_notify(3) and sd_watchdog_enabled(3). Outside systemd every call does nothing.
"""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Mapping
from time import monotonic_ns

_log = logging.getLogger(__name__)


class Notifier:
    """Reports to the service manager that started this process, if one did.

    A report that cannot be sent is logged and otherwise ignored: serving goes on without it.
    """

    def __init__(self, address: str, watchdog_seconds: float | None) -> None:
        self._address = "\0" + address[1:] if address.startswith("@") else address
        self._watchdog = watchdog_seconds
        self._fed = 0

    @classmethod
    def from_environment(cls, env: Mapping[str, str] = os.environ) -> Notifier:
        """The notifier that NOTIFY_SOCKET, WATCHDOG_USEC and WATCHDOG_PID describe."""
        address = env.get("NOTIFY_SOCKET", "")
        if not address.startswith(("/", "@")):
            address = ""
        text = env.get("WATCHDOG_USEC", "")
        ours = env.get("WATCHDOG_PID", str(os.getpid())) == str(os.getpid())
        period = int(text) / 1e6 if ours and text.isascii() and text.isdigit() else 0.0
        return cls(address, period or None)

    @property
    def active(self) -> bool:
        """Whether anybody listens."""
        return bool(self._address)

    @property
    def heartbeat_seconds(self) -> float | None:
        """How often to call `alive`: half the watchdog's period. None without a watchdog."""
        return self._watchdog / 2 if self._watchdog is not None else None

    def ready(self) -> None:
        """The model is warm and requests are taken."""
        self._send("READY=1")

    def stopping(self) -> None:
        """No more requests are taken; running ones end."""
        self._send("STOPPING=1")

    def status(self, text: str) -> None:
        """A line that `systemctl status` shows."""
        self._send("STATUS=" + " ".join(text.split()))

    def alive(self) -> None:
        """Progress was made. Call it as often as you like: at most eight a period are sent."""
        if self._watchdog is None:
            return
        now = monotonic_ns()
        if self._fed and now - self._fed < self._watchdog * 1e9 / 8:
            return
        self._fed = now
        self._send("WATCHDOG=1")

    def extend(self, seconds: float) -> None:
        """Asks for more time to start or stop, while loading goes on."""
        self._send(f"EXTEND_TIMEOUT_USEC={round(seconds * 1e6)}")

    def _send(self, message: str) -> None:
        if not self._address:
            return
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sender:
                # A full queue must not stop decoding.
                sender.setblocking(False)
                sender.sendto(message.encode(), self._address)
        except OSError as error:
            _log.warning("the service manager did not take %r: %s", message, error)
