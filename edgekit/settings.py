"""What a person set and where: flag > EDGEKIT_* > config files > device profile > default.

A setting has one name everywhere: `prefill_chunk` in a file, `EDGEKIT_PREFILL_CHUNK` in the
environment, `--prefill-chunk` on the command line. Files are flat TOML, and a key that edgekit
does not know is an error, since a misspelt setting that is ignored costs an evening.

None means unset: the code that uses the value has a default that depends on the model.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from edgekit import paths
from edgekit.errors import UsageError
from edgekit.names import closest, unknown_name

ENV_PREFIX = "EDGEKIT_"

ENV_SWITCHES = frozenset({"EDGEKIT_API_KEY", "EDGEKIT_DEBUG", "EDGEKIT_NO_PROGRESS"})
"""Environment variables that are no settings: secrets, and what steers one process."""

Tokens = Annotated[int, Field(gt=0)]
Progress = Literal["auto", "plain", "json"]
Speculate = Literal["auto", "off", "dspark", "dflash", "mtp", "ngram"]
DraftTokens = Annotated[int, Field(ge=1, le=7)] | Literal["auto"]


class SettingValues(BaseModel):
    """Every setting, its type and range; the descriptions are what `edgekit config` prints."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    device: str | None = Field(default=None, description="device profile to build and plan for")
    recipe: str | None = Field(default=None, description="recipe to build with")
    bundles_dir: Path | None = Field(default=None, description="folder that holds the bundles")
    context: Tokens | None = Field(default=None, description="tokens of context")
    prefill_chunk: Tokens | None = Field(default=None, description="tokens one prefill step takes")
    threads: int | None = Field(default=None, gt=0, description="CPU threads of the executor")
    prefix_cache: int | None = Field(
        default=None, ge=0, description="MiB for computed prompts; 0 is off"
    )
    progress: Progress = Field(default="auto", description="how builds show progress")
    system: str | None = Field(default=None, description="system prompt")
    think: bool | None = Field(default=None, description="let the model reason before it answers")
    hide_thinking: bool = Field(default=False, description="do not show the reasoning")
    stats: bool | None = Field(default=None, description="counts and rates after each answer")
    max_tokens: Tokens | None = Field(default=None, description="most tokens of one answer")
    temperature: float | None = Field(default=None, ge=0, le=10, description="0 is greedy")
    top_p: float | None = Field(default=None, gt=0, le=1, description="nucleus; 1 is off")
    top_k: int | None = Field(default=None, ge=0, description="most likely tokens kept; 0 is off")
    min_p: float | None = Field(default=None, ge=0, le=1, description="share of the best; 0 is off")
    repetition_penalty: float | None = Field(default=None, gt=0, description="1 is off")
    presence_penalty: float | None = Field(default=None, ge=-2, le=2, description="0 is off")
    frequency_penalty: float | None = Field(default=None, ge=-2, le=2, description="0 is off")
    seed: int | None = Field(default=None, ge=0, description="makes sampling repeatable")
    speculate: Speculate = Field(
        default="off", description="what drafts tokens: auto, off, dspark, dflash, mtp, ngram"
    )
    draft_tokens: DraftTokens = Field(default="auto", description="drafted at once; auto measures")


SETTING_NAMES = tuple(SettingValues.model_fields)


@dataclass(frozen=True, slots=True)
class Settings:
    """The resolved settings.

    Attributes:
        values: typed values, defaults included.
        origins: where each value that somebody set came from, by name.
        files: the configuration files that were read, the one that wins first.
        warnings: what looks like a setting and is none; not an error, since the environment
            belongs to everybody.
    """

    values: SettingValues
    origins: Mapping[str, str] = field(default_factory=dict)
    files: tuple[Path, ...] = ()
    warnings: tuple[str, ...] = ()

    def origin(self, name: str) -> str:
        """Where the value of `name` came from, in words."""
        return self.origins.get(name, "default")

    def is_set(self, name: str) -> bool:
        """Whether somebody set `name`: a person, a file or a device profile."""
        return name in self.origins

    def with_flags(self, **flags: object) -> Self:
        """These settings with the flags of one command on top. None is a flag not given."""
        given = {name: value for name, value in flags.items() if value is not None}
        return self._over(given, {name: f"--{name.replace('_', '-')}" for name in given})

    def with_text(self, name: str, text: str, origin: str) -> Self:
        """These settings with one value as a person typed it.

        Raises:
            UsageError: no such setting, or no value of its type.
        """
        if name not in SETTING_NAMES:
            raise unknown_name("setting", name, SETTING_NAMES)
        return self._over({name: text}, {name: origin}, text=True)

    def with_profile(self, name: str, values: Mapping[str, object]) -> Self:
        """These settings with a device profile's values where nobody set one."""
        unset = {k: v for k, v in values.items() if v is not None and k not in self.origins}
        return self._over(unset, dict.fromkeys(unset, f"profile {name}"))

    def _over(
        self, values: Mapping[str, object], origins: Mapping[str, str], *, text: bool = False
    ) -> Self:
        checked = {name: _check(name, value, origins[name], text) for name, value in values.items()}
        return replace(
            self,
            values=self.values.model_copy(update=checked),
            origins={**self.origins, **origins},
        )


def load_settings(
    *,
    use_config: bool = True,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
) -> Settings:
    """Reads the environment and, unless `use_config` is false, the configuration files.

    Raises:
        UsageError: a file that is not TOML, an unknown key, a value of the wrong type or range.
    """
    env = os.environ if env is None else env
    cwd = Path.cwd() if cwd is None else cwd
    settings = Settings(SettingValues())
    files: list[Path] = []
    for path in reversed(paths.config_files(cwd)) if use_config else ():
        values = _read_file(path)
        if values is not None:
            files.insert(0, path)
            origin = f"./{path.name}" if path.parent == cwd else str(path)
            settings = settings._over(values, dict.fromkeys(values, origin))
    variables, warnings = _from_env(env)
    origins = {name: f"{ENV_PREFIX}{name.upper()}" for name in variables}
    settings = settings._over(variables, origins, text=True)
    return replace(settings, files=tuple(files), warnings=warnings)


def _read_file(path: Path) -> dict[str, Any] | None:
    try:
        with path.open("rb") as stream:
            values = tomllib.load(stream)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise UsageError(
            f"cannot read {path}", cause=error.strerror or str(error), hint="or pass --no-config"
        ) from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"{path} is not valid TOML", cause=str(error)) from None
    for key in values:
        if key not in SETTING_NAMES:
            match = closest(key, SETTING_NAMES)
            hint = f"did you mean {match!r}?" if match else "edgekit config lists the settings"
            raise UsageError(f"{path} has an unknown setting {key!r}", hint=hint)
    return values


def _from_env(env: Mapping[str, str]) -> tuple[dict[str, str], tuple[str, ...]]:
    known = {f"{ENV_PREFIX}{name.upper()}": name for name in SETTING_NAMES}
    values = {}
    warnings = []
    for variable, value in env.items():
        if not variable.startswith(ENV_PREFIX) or variable in ENV_SWITCHES:
            continue
        if variable not in known:
            match = closest(variable, known)
            meant = f" (did you mean {match}?)" if match else ""
            warnings.append(f"{variable} is no setting and is ignored{meant}")
        elif value:
            values[known[variable]] = value
    return values, tuple(sorted(warnings))


def _check(name: str, value: object, origin: str, text: bool) -> object:
    """The value in its setting's type. `text` converts strings, which is all an environment has."""
    if isinstance(value, str) and name == "bundles_dir":
        value = Path(value).expanduser()
    try:
        # One field at a time, so that the message can say where this value came from.
        if text and isinstance(value, str):
            checked = SettingValues.model_validate_strings({name: value})
        else:
            checked = SettingValues.model_validate({name: value}, strict=True)
    except ValidationError as error:
        reason = error.errors(include_url=False, include_input=False)[0]["msg"]
        shown = str(value) if isinstance(value, Path) else repr(value)
        raise UsageError(
            f"{name} is {shown}", cause=f"{reason[0].lower()}{reason[1:]} (from {origin})"
        ) from None
    return getattr(checked, name)
