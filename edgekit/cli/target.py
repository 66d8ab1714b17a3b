"""From what was typed to what it means: a model, a device profile, a recipe, a memory plan."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from edgekit.budget import Model, Plan, Wish, Wishes, plan_memory
from edgekit.catalog import catalog
from edgekit.choice import Choice
from edgekit.cli.options import EMBEDDED, embedded_checkpoint
from edgekit.detect import DeviceMemory, detect_profile, device_memory, query_gpu
from edgekit.engines import FLAVOURS, MAX_CHUNK, choose_executor
from edgekit.errors import MissingDependencyError, UsageError
from edgekit.model import load_spec
from edgekit.names import unknown_name
from edgekit.parameters import count_parameters, stored_bytes
from edgekit.profile import DeviceProfile, Executor, KvDtype, load_profile, profile_names
from edgekit.recipe import Recipe, load_recipe
from edgekit.settings import Settings

if TYPE_CHECKING:
    from edgekit.export.quantize import Way

EMBEDDED_RECIPE = "nano-bf16"
"""Runs on any CPU: what `nano` is built with unless a GPU's device is asked for."""

_UNKNOWN = 1 << 60
"""Bytes of a memory that nobody has told us of: everything fits."""


@dataclass(frozen=True, slots=True)
class Target:
    """What a model is planned or built for."""

    profile: DeviceProfile
    profile_why: str
    recipe: Recipe
    recipe_why: str
    settings: Settings
    forced: Executor | None = None

    @property
    def executor(self) -> Choice[Executor]:
        if self.forced is not None:
            return Choice(self.forced, "--executor")
        if self.recipe.executor is not None:
            return Choice(self.recipe.executor, f"recipe {self.recipe.name}")
        by_profile = self.profile.defaults.executor
        sm = int(self.profile.sm.replace(".", "")) if self.profile.sm else None
        return choose_executor(Choice(by_profile, f"profile {self.profile.name}"), sm)

    def wishes(self, longest: int, snapshots: int | None = None) -> Wishes:
        """What the plan should try for: flags and settings are fixed, the rest may shrink.

        Args:
            longest: the model's own limit. A flag beyond it is left for the build to refuse; a
                setting meant for other models is capped.
        """
        recipe, defaults = self.recipe, self.profile.defaults
        from_recipe, from_profile = f"recipe {recipe.name}", f"profile {self.profile.name}"
        kv_dtype: Wish[KvDtype] = Wish(defaults.kv_dtype, from_profile)
        if recipe.kv_dtype is not None:
            kv_dtype = Wish(recipe.kv_dtype, from_recipe)

        def tokens(name: str, by_recipe: int | None, by_profile: int) -> Wish[int]:
            chosen, origin = getattr(self.settings.values, name), self.settings.origin(name)
            if chosen is not None and chosen > longest and not origin.startswith("--"):
                return Wish(longest, f"{origin} says {chosen}, the model ends here", fixed=True)
            if chosen is not None:
                return Wish(chosen, origin, fixed=True)
            if by_recipe is not None:
                return Wish(by_recipe, from_recipe)
            return Wish(by_profile, from_profile)

        chunk = tokens("prefill_chunk", recipe.prefill_chunk, defaults.prefill_chunk)
        if self.executor.value in FLAVOURS and chunk.value > MAX_CHUNK and not chunk.fixed:
            why = f"{chunk.why} says {chunk.value}, an engine's memory grows with its square"
            chunk = Wish(MAX_CHUNK, why)
        wanted: Wish[int] | None = None
        if snapshots is not None:
            wanted = Wish(snapshots, "--snapshots", fixed=True)
        elif recipe.snapshots is not None:
            wanted = Wish(recipe.snapshots, from_recipe)
        return Wishes(
            executor=self.executor,
            kv_dtype=kv_dtype,
            context=tokens("context", recipe.context, defaults.context),
            prefill_chunk=chunk,
            snapshots=wanted,
        )


def resolve_target(
    settings: Settings, model: str, device: str | None = None, executor: Executor | None = None
) -> Target:
    """The device and the recipe: chosen, or this machine and what suits it.

    Args:
        device: a profile that takes the place of the setting.
        executor: what takes the place of the recipe's and the profile's.

    Raises:
        UsageError: no such profile or recipe.
    """
    name = device or settings.values.device
    if name is not None:
        profile, why = load_profile(name), settings.origin("device")
    else:
        detected = detect_profile()
        profile, why = load_profile(detected.value), f"detected: {detected.why}"
    if settings.values.recipe is not None:
        recipe, recipe_why = load_recipe(settings.values.recipe), settings.origin("recipe")
    elif model == EMBEDDED and (name is None or profile.family not in ("gpu", "spark")):
        recipe, recipe_why = load_recipe(EMBEDDED_RECIPE), "the embedded model's own"
    else:
        recipe, recipe_why = load_recipe(profile.defaults.recipe), f"profile {profile.name}"
    return Target(profile, why, recipe, recipe_why, settings, executor)


def as_recipe_leaves(
    described: Model, target: Target, model: str, calib: Path | None = None
) -> tuple[Model, Choice[Way]]:
    """The model with the weights that the target's recipe leaves, and how they get so.

    Raises:
        CheckpointError: MODEL's checkpoint cannot be read.
        EdgekitError: the recipe cannot be applied to it.
    """
    recipe = target.recipe
    if recipe.quantize is None and calib is None:
        return described, Choice("unchanged", f"recipe {recipe.name} quantizes nothing")
    from edgekit.export.quantize import foresee

    outcome = foresee(checkpoint_folder(model), recipe, calib)
    why = f"as recipe {recipe.name} leaves them"
    return replace(described, weight_bytes=outcome.nbytes, weights_why=why), outcome.way


def checkpoint_folder(model: str) -> Path:
    """The checkpoint that MODEL means: the embedded one, or a folder.

    Raises:
        UsageError: neither.
    """
    if model == EMBEDDED:
        return embedded_checkpoint()
    path = Path(model).expanduser()
    if path.is_dir():
        return path
    if model in catalog():
        title = catalog()[model].title
        raise UsageError(
            f"{model!r} is a name to plan with, not a checkpoint",
            cause=f"building needs the weights of {title}",
            hint="download the checkpoint from Hugging Face and pass its folder",
        )
    if "/" in model or path.exists():
        what = "is not a folder" if path.exists() else "does not exist"
        raise UsageError(
            f"{model} {what}", hint="pass a checkpoint folder, or `nano` for the embedded model"
        )
    raise unknown_name("model or checkpoint folder", model, [EMBEDDED, *catalog()])


def plan_model(model: str) -> Model:
    """What the plan needs to know of a model: a name, or a checkpoint folder whose weights may
    still be missing.

    Raises:
        UsageError: no such model.
        CheckpointError: its config.json or a header cannot be read.
    """
    if model in catalog() and not Path(model).is_dir():
        known = catalog()[model]
        size = count_parameters(known.spec).nbytes(known.formats)
        return Model(known.title, known.spec, size, known.published)
    folder = checkpoint_folder(model)
    spec = load_spec(folder)
    size_or_none = stored_bytes(folder)
    name = model if model == EMBEDDED else folder.resolve().name
    if size_or_none is None:
        size = count_parameters(spec).nbytes({})
        return Model(name, spec, size, "no weights here: counted as bfloat16 from config.json")
    return Model(name, spec, size_or_none, "as stored")


def plan_for(
    target: Target, model: Model, snapshots: int | None = None, *, elsewhere: bool = False
) -> Plan:
    """The memory plan of a model on the target's device.

    Args:
        elsewhere: the device is another machine's, whose memory need not be known.

    Raises:
        MissingDependencyError: the device's memory cannot be told from here.
    """
    try:
        memory = device_memory(target.profile)
    except MissingDependencyError:
        if not elsewhere:
            raise
        memory = DeviceMemory(_UNKNOWN, _UNKNOWN, "another machine's, not known here")
    wishes = target.wishes(model.spec.max_position_embeddings, snapshots)
    return plan_memory(model, target.profile, memory, wishes)


def compute_capability(target: Target) -> int:
    """What kernels are compiled for on the target's device, 90 for 9.0.

    Raises:
        MissingDependencyError: the profile leaves it to the machine, which has no NVIDIA GPU.
    """
    capability = target.profile.sm
    if not capability:
        gpu = query_gpu()
        if gpu is None:
            raise MissingDependencyError(
                f"profile {target.profile.name!r} needs an NVIDIA GPU to build for",
                cause="nvidia-smi is missing or names none",
                hint="say which GPU it is for: --sm 90 for compute capability 9.0",
            )
        capability = gpu.compute_capability
    return int(capability.replace(".", ""))


def plans_for_all(settings: Settings, model_name: str, model: Model) -> Iterator[Plan]:
    """The plan on every profile whose memory is known here."""
    for name in profile_names():
        target = resolve_target(settings, model_name, name)
        try:
            yield plan_for(target, model)
        except MissingDependencyError:
            continue
