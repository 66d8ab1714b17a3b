"""Settings: precedence, origins, and errors that name the place."""

from __future__ import annotations

from pathlib import Path

import pytest

from edgekit import paths
from edgekit.errors import UsageError
from edgekit.settings import SETTING_NAMES, load_settings


@pytest.fixture
def layers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Path]:
    """A project, a user and a system configuration file, not written yet."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setattr(paths, "SYSTEM_CONFIG", tmp_path / "etc" / "config.toml")
    project = tmp_path / "project"
    found = {
        "project": project / "edgekit.toml",
        "user": paths.user_config(),
        "system": paths.SYSTEM_CONFIG,
    }
    for path in found.values():
        path.parent.mkdir(parents=True)
    return found


def test_every_layer_beats_the_ones_below(layers: dict[str, Path]) -> None:
    cwd = layers["project"].parent

    def context(**flags: object) -> tuple[int | None, str]:
        settings = load_settings(env=env, cwd=cwd).with_flags(**flags)
        settings = settings.with_profile("thor-t5000", {"context": 1})
        return settings.values.context, settings.origin("context")

    env: dict[str, str] = {}
    assert load_settings(env=env, cwd=cwd).origin("context") == "default"
    assert context() == (1, "profile thor-t5000")
    layers["system"].write_text("context = 2\n")
    assert context() == (2, str(layers["system"]))
    layers["user"].write_text("context = 3\n")
    assert context() == (3, str(layers["user"]))
    layers["project"].write_text("context = 4\n")
    assert context() == (4, "./edgekit.toml")
    env = {"EDGEKIT_CONTEXT": "5"}
    assert context() == (5, "EDGEKIT_CONTEXT")
    assert context(context=6) == (6, "--context")


def test_files_read_are_listed_and_no_config_reads_none(layers: dict[str, Path]) -> None:
    layers["user"].write_text("think = false\n")
    cwd = layers["project"].parent
    settings = load_settings(env={}, cwd=cwd)
    assert settings.files == (layers["user"],)
    assert settings.values.think is False
    ignored = load_settings(env={}, cwd=cwd, use_config=False)
    assert ignored.files == ()
    assert ignored.values.think is None


def test_a_misspelt_key_is_an_error_that_names_the_right_one(layers: dict[str, Path]) -> None:
    layers["project"].write_text("temprature = 1.0\n")
    with pytest.raises(UsageError) as caught:
        load_settings(env={}, cwd=layers["project"].parent)
    assert "temprature" in caught.value.message
    assert str(layers["project"]) in caught.value.message
    assert "'temperature'" in caught.value.hint


@pytest.mark.parametrize(
    "text",
    ["context = 0", "context = '4096'", "temperature = -1", "progress = 'loud'", "top_p = 0.0"],
)
def test_a_wrong_value_names_its_file(layers: dict[str, Path], text: str) -> None:
    layers["project"].write_text(text)
    with pytest.raises(UsageError, match=text.split()[0]) as caught:
        load_settings(env={}, cwd=layers["project"].parent)
    assert "./edgekit.toml" in caught.value.cause


def test_a_broken_file_is_an_error(layers: dict[str, Path]) -> None:
    layers["user"].write_text("context = = 3")
    with pytest.raises(UsageError, match="not valid TOML"):
        load_settings(env={}, cwd=layers["project"].parent)


def test_environment_values_are_converted(tmp_path: Path) -> None:
    env = {
        "EDGEKIT_TEMPERATURE": "0.5",
        "EDGEKIT_THINK": "off",
        "EDGEKIT_BUNDLES_DIR": "~/models",
        "EDGEKIT_SEED": "",  # empty is unset, as shells write it
    }
    settings = load_settings(env=env, cwd=tmp_path, use_config=False)
    assert settings.values.temperature == 0.5
    assert settings.values.think is False
    assert settings.values.bundles_dir == Path("~/models").expanduser()
    assert not settings.is_set("seed")


def test_an_unknown_variable_is_a_warning(tmp_path: Path) -> None:
    env = {"EDGEKIT_CONTXT": "3", "EDGEKIT_DEBUG": "1"}
    (warning,) = load_settings(env=env, cwd=tmp_path, use_config=False).warnings
    assert "EDGEKIT_CONTEXT" in warning


def test_text_of_a_person_is_checked(tmp_path: Path) -> None:
    settings = load_settings(env={}, cwd=tmp_path, use_config=False)
    changed = settings.with_text("temperature", "0.7", "/set")
    assert changed.values.temperature == 0.7
    assert changed.origin("temperature") == "/set"
    with pytest.raises(UsageError, match="temperature is 'hot'"):
        settings.with_text("temperature", "hot", "/set")
    with pytest.raises(UsageError) as caught:
        settings.with_text("temprature", "1", "/set")
    assert "'temperature'" in caught.value.hint


def test_flags_left_out_change_nothing(tmp_path: Path) -> None:
    settings = load_settings(env={"EDGEKIT_SEED": "7"}, cwd=tmp_path, use_config=False)
    assert settings.with_flags(seed=None, context=None) == settings


def test_names_are_flat() -> None:
    assert all(name.replace("_", "").isalpha() for name in SETTING_NAMES)


def test_paths_follow_xdg(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in ("DATA", "CACHE", "STATE", "CONFIG"):
        monkeypatch.setenv(f"XDG_{variable}_HOME", str(tmp_path / variable))
    assert paths.bundles_dir() == tmp_path / "DATA/edgekit/bundles"
    assert paths.cache_dir() == tmp_path / "CACHE/edgekit"
    assert paths.history_file() == tmp_path / "STATE/edgekit/history"
    assert paths.user_config() == tmp_path / "CONFIG/edgekit/config.toml"
    assert not any(tmp_path.iterdir())
