"""Where edgekit keeps things, by the XDG rules. Nothing here creates a folder."""

from __future__ import annotations

from pathlib import Path

import platformdirs

APP = "edgekit"
SYSTEM_CONFIG = Path("/etc/edgekit/config.toml")
PROJECT_CONFIG = "edgekit.toml"


def bundles_dir() -> Path:
    """`$XDG_DATA_HOME/edgekit/bundles`: one folder a bundle."""
    return platformdirs.user_data_path(APP, appauthor=False) / "bundles"


def cache_dir() -> Path:
    """`$XDG_CACHE_HOME/edgekit`: what can be made again (timing caches, intermediate graphs)."""
    return platformdirs.user_cache_path(APP, appauthor=False)


def state_dir() -> Path:
    """`$XDG_STATE_HOME/edgekit`: history and saved conversations."""
    return platformdirs.user_state_path(APP, appauthor=False)


def history_file() -> Path:
    """What was typed at the chat prompt."""
    return state_dir() / "history"


def user_config() -> Path:
    """`$XDG_CONFIG_HOME/edgekit/config.toml`."""
    return platformdirs.user_config_path(APP, appauthor=False) / "config.toml"


def config_files(cwd: Path) -> tuple[Path, ...]:
    """The configuration files that may exist, the one that wins first."""
    return (cwd / PROJECT_CONFIG, user_config(), SYSTEM_CONFIG)
