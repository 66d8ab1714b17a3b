"""The systemd unit of a server, as text. Nothing here touches the system.

Sources: systemd.service(5), systemd.exec(5), systemd.resource-control(5).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from edgekit.errors import UsageError

NO_RESTART = (2, 3)
"""Exit codes that a restart cannot mend: usage, and hardware or packages that are missing."""


@dataclass(frozen=True, slots=True)
class Service:
    """What a unit is written for.

    Attributes:
        program: edgekit's executable. bundle: the bundle's folder. Both absolute.
        port: to listen on, on localhost.
        groups: numeric ids of the groups that own the GPU's device nodes. Names differ between
            distributions, and a name that is missing keeps a unit from starting.
    """

    program: Path
    bundle: Path
    port: int = 8080
    groups: Sequence[int] = ()


def unit_text(service: Service) -> str:
    """The unit file.

    Raises:
        UsageError: a path that is not absolute, or holds a control character.
    """
    program, bundle = _argument(service.program), _argument(service.bundle)
    groups = " ".join(str(gid) for gid in sorted(set(service.groups)))
    supplementary = f"SupplementaryGroups={groups}\n" if groups else ""
    return f"""\
[Unit]
Description=edgekit model server
# Not after graphical.target: boards run headless.
After=network.target nvpmodel.service nvidia-persistenced.service
StartLimitIntervalSec=600
StartLimitBurst=5

[Service]
Type=notify
NotifyAccess=main
ExecStart={program} serve --port {service.port} {bundle}
TimeoutStartSec=900
TimeoutStopSec=60
WatchdogSec=60
Restart=on-failure
RestartSec=10
RestartPreventExitStatus={" ".join(map(str, NO_RESTART))}
KillMode=control-group
DynamicUser=yes
{supplementary}StateDirectory=edgekit
CacheDirectory=edgekit
Environment=XDG_DATA_HOME=%S XDG_STATE_HOME=%S XDG_CACHE_HOME=%C
# Lose the server before sshd. No MemoryMax: it does not see CUDA's memory on unified boards.
OOMScoreAdjust=500
OOMPolicy=stop
UMask=0077
# The GPU's nodes stay reachable, and /proc/meminfo too: the memory guard reads it.
PrivateDevices=no
ProcSubset=all
ProtectSystem=strict
ProtectHome=read-only
PrivateTmp=yes
NoNewPrivileges=yes
CapabilityBoundingSet=
ProtectKernelTunables=yes
ProtectKernelModules=yes
ProtectKernelLogs=yes
ProtectControlGroups=yes
ProtectClock=yes
ProtectHostname=yes
RestrictNamespaces=yes
RestrictRealtime=yes
RestrictSUIDSGID=yes
LockPersonality=yes
SystemCallArchitectures=native
RestrictAddressFamilies=AF_UNIX AF_INET AF_INET6 AF_NETLINK

[Install]
WantedBy=multi-user.target
"""


def _argument(path: Path) -> str:
    """A path as one argument of ExecStart: quoted, without specifiers and variables."""
    text = str(path)
    if not path.is_absolute() or not text.isprintable():
        raise UsageError(
            f"a service needs an absolute path, not {text!r}", hint="edgekit list shows bundles"
        )
    for plain, escaped in (("\\", "\\\\"), ('"', '\\"'), ("%", "%%"), ("$", "$$")):
        text = text.replace(plain, escaped)
    return f'"{text}"'
