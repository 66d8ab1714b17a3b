"""The memory plan: what a model needs on a device, item by item, before anything is built.

Pure arithmetic from dimensions, formats and the device profile. Only values that nobody chose are
changed to make a model fit; each keeps its reason. What was chosen and does not fit is an error
that shows the plan.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Generic, Literal, TypeVar

from edgekit.catalog import SMALLER_MODELS
from edgekit.choice import Choice
from edgekit.detect import DeviceMemory
from edgekit.errors import DoesNotFitError
from edgekit.model import ModelSpec
from edgekit.parameters import count_parameters
from edgekit.profile import DTYPE_BYTES, DeviceProfile, Executor, KvDtype
from edgekit.units import size_text

Verdict = Literal["fits", "marginal", "does not fit"]

MIN_CONTEXT = 1024
MIN_CHUNK = 64
MAX_SNAPSHOTS = 8
VERIFY_ROWS = 8
DRAFT_BLOCK = 8
"""Rows behind the committed ones that a drafted block or an MTP step writes and forgets."""
DRAFT_SLACK = 128
"""Rows a windowed cache takes beyond its window before it moves the window to its front."""
MARGINAL_BELOW = 1 / 3
"""Marginal: less than this part of the spendable memory stays free. Builds, page cache and other
programs then decide whether it works."""

_MIB = 1 << 20

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Wish(Generic[T]):
    """A value somebody wants. A fixed one was chosen by a person and is never changed."""

    value: T
    why: str
    fixed: bool = False


@dataclass(frozen=True, slots=True)
class DraftNeeds:
    """What drafting takes besides the model.

    Attributes:
        weight_bytes: resident, without what it shares with the model.
        window: rows its caches keep at most, None is the whole context.
        row_bytes: of its caches, for each row. tap_width: features of the model it reads.
    """

    kind: str
    weight_bytes: int
    window: int | None
    row_bytes: int
    tap_width: int


@dataclass(frozen=True, slots=True)
class Model:
    """What a plan knows of a model.

    Attributes:
        weight_bytes: of the weights as stored.
        weights_why: how that was found.
        draft: of the drafter that a bundle gets; None without one.
    """

    name: str
    spec: ModelSpec
    weight_bytes: int
    weights_why: str
    draft: DraftNeeds | None = None


@dataclass(frozen=True, slots=True)
class Wishes:
    """What the plan is for. `snapshots` None takes what the profile's budget holds."""

    executor: Choice[Executor]
    kv_dtype: Wish[KvDtype]
    context: Wish[int]
    prefill_chunk: Wish[int]
    snapshots: Wish[int] | None = None


@dataclass(frozen=True, slots=True)
class Item:
    """One line of the plan, in bytes."""

    name: str
    nbytes: int
    why: str


@dataclass(frozen=True, slots=True)
class Plan:
    """A memory plan. All sizes in bytes.

    Attributes:
        total: memory of the device. usable: free on it when idle. reserve: kept free always.
    """

    model: str
    profile: str
    executor: Choice[Executor]
    kv_dtype: Choice[KvDtype]
    context: Choice[int]
    prefill_chunk: Choice[int]
    snapshots: Choice[int]
    items: tuple[Item, ...]
    total: int
    usable: int
    usable_why: str
    reserve: int
    notes: tuple[str, ...] = field(default=())

    @property
    def needed(self) -> int:
        """What edgekit's process takes."""
        return sum(item.nbytes for item in self.items)

    @property
    def available(self) -> int:
        """What it may take: usable less the reserve."""
        return max(0, self.usable - self.reserve)

    @property
    def headroom(self) -> int:
        """What stays free beyond the reserve; negative when the plan does not fit."""
        return self.available - self.needed

    @property
    def verdict(self) -> Verdict:
        if self.headroom < 0:
            return "does not fit"
        return "marginal" if self.headroom < self.available * MARGINAL_BELOW else "fits"


def plan_memory(model: Model, profile: DeviceProfile, memory: DeviceMemory, wishes: Wishes) -> Plan:
    """The first plan that fits, trying smaller values for what nobody chose; when none fits, the
    smallest. Check its `verdict`; `fit_error` explains."""
    plan = None
    for context, snapshots, chunk in _attempts(model.spec, profile, wishes):
        plan = _plan(model, profile, memory, wishes, context, chunk, snapshots)
        if plan.headroom >= 0:
            break
    assert plan is not None
    return plan


def fit_error(plan: Plan, model: Model, boards: Sequence[Plan] = ()) -> DoesNotFitError:
    """The error for a plan that does not fit: its table, and what would fit.

    Args:
        boards: plans of the same model on other devices, for the hint.
    """
    width = max(len(item.name) for item in plan.items)
    lines = [
        f"{item.name:<{width}} {size_text(item.nbytes):>11}  {item.why}" for item in plan.items
    ]
    lines += [
        f"{'needed':<{width}} {size_text(plan.needed):>11}",
        f"{'available':<{width}} {size_text(plan.available):>11}  "
        f"{size_text(plan.usable)} usable less {size_text(plan.reserve)} reserve",
        f"{'short by':<{width}} {size_text(-plan.headroom):>11}",
    ]
    return DoesNotFitError(
        f"{plan.model} does not fit {plan.profile}",
        cause="\n".join(lines),
        hint="\n".join(suggestions(plan, model, boards)),
    )


def suggestions(plan: Plan, model: Model, boards: Sequence[Plan] = ()) -> list[str]:
    """What to try when a plan does not fit, the smallest change first."""
    found = []
    per_token = _kv_per_token(model.spec, plan.kv_dtype.value)
    spare = plan.headroom + plan.context.value * per_token
    fitting = spare // per_token // 256 * 256 if per_token else 0
    if 256 <= fitting < plan.context.value:
        found.append(f"--context {fitting} fits")
    smallest = min(
        (board for board in boards if board.headroom >= 0),
        key=lambda board: board.total,
        default=None,
    )
    if smallest is not None:
        verdict = "" if smallest.verdict == "fits" else f" ({smallest.verdict})"
        found.append(f"the smallest board that holds it is {smallest.profile}{verdict}")
    if not found or fitting < 256:
        found += [
            f"{known.title} takes {size_text(known.peak_mib * _MIB)} ({known.source})"
            for known in SMALLER_MODELS
            if known.peak_mib * _MIB < plan.available
        ]
        found.append("edgekit run nano runs anywhere")
    return found


def _attempts(
    spec: ModelSpec, profile: DeviceProfile, wishes: Wishes
) -> Iterator[tuple[Choice[int], Choice[int], Choice[int]]]:
    """(context, snapshots, chunk), the wanted values first. Snapshots are given up first, then the
    chunk's size, and context last."""
    wish = wishes.context
    if not wish.fixed and wish.value > spec.max_position_embeddings:
        why = f"{wish.why}, capped at the model's {spec.max_position_embeddings}"
        wish = Wish(spec.max_position_embeddings, why)
    for context in _halvings(wish, MIN_CONTEXT):
        for chunk in _halvings(wishes.prefill_chunk, MIN_CHUNK):
            if chunk.value > context.value:
                chunk = Choice(context.value, "the whole context is one chunk")
            for snapshots in _snapshot_choices(spec, profile, wishes):
                yield context, snapshots, chunk


def _halvings(wish: Wish[int], least: int) -> Iterator[Choice[int]]:
    yield Choice(wish.value, wish.why)
    value = wish.value // 2
    while not wish.fixed and value >= least:
        yield Choice(value, f"{wish.why} wants {wish.value}, which does not fit")
        value //= 2


def _snapshot_choices(
    spec: ModelSpec, profile: DeviceProfile, wishes: Wishes
) -> Iterator[Choice[int]]:
    size = spec.state_bytes()
    wish = wishes.snapshots
    if wish is None:
        budget = profile.defaults.snapshot_budget_mib
        count = min(MAX_SNAPSHOTS, budget * _MIB // size) if size else 0
        wish = Wish(count, f"what {budget} MiB hold, at most {MAX_SNAPSHOTS}")
    yield Choice(wish.value, wish.why)
    if not wish.fixed:
        for value in range(wish.value - 1, -1, -1):
            yield Choice(value, f"{wish.value} do not fit")


def _plan(
    model: Model,
    profile: DeviceProfile,
    memory: DeviceMemory,
    wishes: Wishes,
    context: Choice[int],
    chunk: Choice[int],
    snapshots: Choice[int],
) -> Plan:
    spec, kv = model.spec, wishes.kv_dtype
    state = spec.state_bytes()
    per_token = _kv_per_token(spec, kv.value)
    weights, weights_why = _resident_weights(model, wishes.executor.value)
    runtime = profile.memory.runtime_mib
    items = (
        Item("weights", weights, weights_why),
        Item("KV cache", context.value * per_token, f"{context.value} tokens x {per_token} B"),
        Item("conv and SSM state", 2 * state, f"2 x {size_text(state)}, double buffered"),
        Item("snapshots", snapshots.value * state, f"{snapshots.value} x {size_text(state)}"),
        Item("verify stash", _stash_bytes(spec), f"{VERIFY_ROWS} rows"),
        Item(
            "activations",
            _activation_bytes(spec, chunk.value, wishes.executor.value),
            f"a prefill chunk of {chunk.value} tokens",
        ),
        *_draft_items(model.draft, context.value, chunk.value),
        Item("runtime", int(runtime.value) * _MIB, runtime.source or "not measured"),
    )
    return Plan(
        model=model.name,
        profile=profile.name,
        executor=wishes.executor,
        kv_dtype=Choice(kv.value, kv.why),
        context=context,
        prefill_chunk=chunk,
        snapshots=snapshots,
        items=items,
        total=memory.total,
        usable=memory.usable,
        usable_why=memory.why,
        reserve=int(profile.memory.reserve_mib.value) * _MIB,
        notes=profile.notes,
    )


def _draft_items(draft: DraftNeeds | None, context: int, chunk: int) -> Iterator[Item]:
    if draft is None:
        return
    rows = DRAFT_BLOCK + (
        context if draft.window is None else min(context, draft.window + DRAFT_SLACK)
    )
    yield Item("draft weights", draft.weight_bytes, draft.kind)
    yield Item("draft KV cache", rows * draft.row_bytes, f"{rows} rows x {draft.row_bytes} B")
    taps = chunk * draft.tap_width * 4
    yield Item("taps", taps, f"{chunk} tokens x {draft.tap_width} float32")


def _kv_per_token(spec: ModelSpec, dtype: KvDtype) -> int:
    return spec.kv_bytes_per_token(DTYPE_BYTES[dtype])


def _resident_weights(model: Model, executor: Executor) -> tuple[int, str]:
    """ONNX Runtime computes in float32 and takes each expert's up matrix twice (export/lower/ort);
    the plugins decode the stored formats in registers."""
    if executor != "ort":
        return model.weight_bytes, model.weights_why
    parameters = count_parameters(model.spec)
    doubled = parameters.matrices["routed"] // 2
    return 4 * (
        parameters.total + parameters.buffers + doubled
    ), "float32, as ONNX Runtime computes"


def _stash_bytes(spec: ModelSpec) -> int:
    """What commit replays: xBC and dt of each row and Mamba layer, float32."""
    row = (spec.conv_dim + spec.mamba_num_heads) * 4
    return VERIFY_ROWS * row * len(spec.layers_of("M"))


def _activation_bytes(spec: ModelSpec, chunk: int, executor: Executor) -> int:
    """An upper estimate of the live activations of one step: the residual stream and the widest
    layer, whose intermediates are counted as if none reused another's memory."""
    element = 4 if executor == "ort" else 2
    heads = spec.num_attention_heads * spec.head_dim
    kv_heads = spec.num_key_value_heads * spec.head_dim
    widths = {
        "M": 2 * spec.in_proj_dim + 4 * spec.conv_dim + 6 * spec.d_inner,
        "E": spec.num_experts_per_tok * (3 * spec.moe_intermediate_size + spec.hidden_size)
        + 3 * spec.moe_shared_expert_intermediate_size
        + 2 * spec.n_routed_experts,
        "*": 3 * heads + 4 * kv_heads,
        "-": 3 * spec.intermediate_size,
    }
    widest = max(widths[kind] for kind in set(spec.layers))
    per_token = (3 * spec.hidden_size + widest) * element
    logits = VERIFY_ROWS * spec.vocab_size * 4
    return chunk * per_token + logits
