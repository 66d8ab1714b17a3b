"""The text of the systemd unit."""

from __future__ import annotations

import stat
from dataclasses import dataclass
from pathlib import Path

from edgekit.errors import EdgekitError, UsageError

NAME = "edgekit.service"
FOLDER = "edgekit"
"""Of its state and cache, below /var/lib and /var/cache."""
# Tegra's nodes and those of nvidia.ko; which exist depends on the board and its release.
_NODES = (
    "/dev/nvidiactl",
    "/dev/nvidia0",
    "/dev/nvidia-uvm",
    "/dev/nvidia-uvm-tools",
    "/dev/nvidia-modeset",
    "/dev/nvmap",
    "/dev/nvsciipc",
    "/dev/host1x-fence",
)
# Names in /proc/devices, for nodes in folders and with numbers.
_CLASSES = ("char-nvidia*", "char-nvhost*", "char-nvgpu*", "char-nvmap*", "char-drm")

WATCHDOG_SECONDS = 60
"""Longer than a chunk of prefill takes on the slowest board."""


@dataclass(frozen=True, slots=True)
class Unit:
    """What the service runs.

    Attributes:
        command: the edgekit executable. python: the interpreter below it, links followed.
        bundle: its folder.
        need_mib: memory to wait for before the model is loaded.
        gpu: whether to wait for a GPU device node as well.
        gids: groups that own the GPU's nodes, by number: a container may lack the names.
    """

    command: Path
    python: Path
    bundle: Path
    host: str
    port: int
    need_mib: int
    gpu: bool
    gids: tuple[int, ...] = ()

    def text(self) -> str:
        """The unit file.

        Raises:
            UsageError: a path cannot be written into a unit.
        """
        edgekit, bundle = _quoted(self.command), _quoted(self.bundle)
        wait = f"--wait-mib {self.need_mib}" + (" --wait-gpu" if self.gpu else "")
        groups = " ".join(map(str, self.gids))
        devices = "\n".join(f"DeviceAllow={name} rw" for name in (*_NODES, *_CLASSES))
        in_home = any(
            path.is_relative_to(home)
            for path in (self.command, self.python, self.bundle)
            for home in _HOMES
        )
        return f"""\
# Written by `edgekit service install`; `edgekit service uninstall` removes it.
[Unit]
Description=edgekit: {_escaped(self.bundle.name)}
# Power mode and driver come first. A desktop does not: boards are often headless.
After=network.target nvpmodel.service nvidia-persistenced.service systemd-modules-load.service
StartLimitIntervalSec=900
StartLimitBurst=5

[Service]
Type=notify
NotifyAccess=main
# Device nodes appear late and a stopped process gives its memory back late: both are waited for.
ExecStartPre={edgekit} doctor {wait} --wait-seconds 120
ExecStart={edgekit} serve {bundle} --host {self.host} --port {self.port} \
--prefix-dir %S/{FOLDER}/prefixes
# The file may set EDGEKIT_API_KEY.
EnvironmentFile=-/etc/edgekit/service.env
Environment=HOME=%S/{FOLDER} XDG_CACHE_HOME=%C/{FOLDER} PYTHONUNBUFFERED=1
TimeoutStartSec=1200
TimeoutStopSec=60
WatchdogSec={WATCHDOG_SECONDS}
Restart=on-failure
RestartSec=10
# Trying again mends neither a bundle that is bad or too large (1) nor a wrong flag (2).
RestartPreventExitStatus=1 2
# Under pressure the server goes, not the shell that could help. MemoryMax is left out: it does not
# see CUDA's memory where CPU and GPU share it.
OOMScoreAdjust=500
OOMPolicy=stop
KillMode=control-group

DynamicUser=yes
SupplementaryGroups={groups}
StateDirectory={FOLDER}
CacheDirectory={FOLDER}
UMask=0077

DevicePolicy=closed
{devices}
PrivateDevices=no
# ProcSubset=pid would hide /proc/meminfo.
ProcSubset=all
ProtectProc=invisible
ProtectSystem=strict
ProtectHome={"read-only" if in_home else "yes"}
PrivateTmp=yes
NoNewPrivileges=yes
CapabilityBoundingSet=
AmbientCapabilities=
ProtectKernelTunables=yes
ProtectKernelModules=yes
ProtectKernelLogs=yes
ProtectControlGroups=yes
ProtectClock=yes
ProtectHostname=yes
LockPersonality=yes
RestrictNamespaces=yes
RestrictRealtime=yes
RestrictSUIDSGID=yes
RestrictAddressFamilies=AF_UNIX AF_INET AF_INET6 AF_NETLINK
SystemCallArchitectures=native
SystemCallFilter=@system-service
SystemCallFilter=~@privileged
SystemCallErrorNumber=EPERM

[Install]
WantedBy=multi-user.target
"""


_HOMES = (Path("/home"), Path("/root"))
_TEMPORARY = (Path("/tmp"), Path("/var/tmp"))


def device_gids(dev: Path = Path("/dev")) -> tuple[int, ...]:
    """Groups other than root that own GPU nodes below `dev`, sorted."""
    gids = set()
    for pattern in ("nvidia*", "nvmap", "nvhost*", "nvgpu/*/*", "dri/renderD*"):
        for path in dev.glob(pattern):
            try:
                info = path.stat()
            except OSError:
                continue
            if not stat.S_ISDIR(info.st_mode) and info.st_gid:
                gids.add(info.st_gid)
    return tuple(sorted(gids))


def check_reachable(path: Path) -> None:
    """Raises EdgekitError when a user of its own could not get at `path`."""
    real = path.resolve()
    if any(real.is_relative_to(folder) for folder in _TEMPORARY):
        raise EdgekitError(
            f"the service could not see {path}",
            cause="services have a /tmp of their own, and files there are deleted",
            hint="EDGEKIT_BUNDLES_DIR=/var/lib/edgekit-bundles edgekit build MODEL",
        )
    for folder in real.parents:
        if not folder.stat().st_mode & stat.S_IXOTH:
            raise EdgekitError(
                f"the service's user could not read {path}",
                cause=f"{folder} is closed to other users",
                hint="install edgekit in /opt and build bundles in /var/lib: "
                "EDGEKIT_BUNDLES_DIR=/var/lib/edgekit-bundles",
            )


def _escaped(text: str) -> str:
    if any(ord(c) < 32 for c in text):
        raise UsageError(f"{text!r} cannot be written into a unit: it has control characters")
    return text.replace("%", "%%")


def _quoted(path: Path) -> str:
    """A path as a word of a command line in a unit."""
    text = _escaped(str(path)).replace("\\", "\\\\").replace('"', '\\"').replace("$", "$$")
    return f'"{text}"' if set(text) & set(" \t'\"\\;") else text
