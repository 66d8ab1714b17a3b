"""Lightning on every profile, in one table. A changed number here is a changed promise.

The table is what the planner says, kept from changing unnoticed; whether it is right is the
matter of test_budget, against published counts, sizes and peaks. `cpu` and `gpu` ask the machine
for its memory, so here they have that of a laptop and of a 24 GB card.
"""

from __future__ import annotations

import pytest

from edgekit.budget import Model, Plan, Wish, Wishes, fit_error, plan_memory
from edgekit.catalog import catalog
from edgekit.choice import Choice
from edgekit.detect import DeviceMemory, device_memory
from edgekit.parameters import count_parameters
from edgekit.profile import load_profile, profile_names

TABLE = """
profile        verdict        needed   avail     left    ctx chunk snaps kv
agx-orin-32gb  marginal        19064   28376     9311   8192   512  5 bfloat16
agx-orin-64gb  fits            19255   58952    39696  16384   512  8 bfloat16
cpu            does not fit   176710   13824  -162887   1024    64  0 float32
dgx-spark      fits            19427  103908    84480  32768  1024  8 bfloat16
gpu            marginal        19207   23040     3832   8192   512  8 bfloat16
orin-nano-4gb  does not fit    18517    2644   -15874   1024    64  0 bfloat16
orin-nano-8gb  does not fit    18617    6288   -12330   1024    64  0 bfloat16
orin-nx-16gb   does not fit    18617   13832    -4786   1024    64  0 bfloat16
orin-nx-8gb    does not fit    18617    6288   -12330   1024    64  0 bfloat16
thor-t4000     fits            19351   57952    38600  32768   512  8 bfloat16
thor-t5000     fits            19427  117904    98476  32768  1024  8 bfloat16
"""

MACHINES = {
    "cpu": DeviceMemory(16 << 30, 14 << 30, "a laptop"),
    "gpu": DeviceMemory(24 << 30, 23 << 30, "a 24 GB card"),
}


def lightning(name: str) -> tuple[Plan, Model]:
    known, profile = catalog()["lightning"], load_profile(name)
    size = count_parameters(known.spec).nbytes(known.formats)
    model = Model(known.title, known.spec, size, known.published)
    defaults = profile.defaults
    wishes = Wishes(
        executor=Choice(defaults.executor, "profile"),
        kv_dtype=Wish(defaults.kv_dtype, "profile"),
        context=Wish(defaults.context, "profile"),
        prefill_chunk=Wish(defaults.prefill_chunk, "profile"),
    )
    memory = MACHINES.get(name) or device_memory(profile)
    return plan_memory(model, profile, memory, wishes), model


def row(name: str) -> str:
    plan, _ = lightning(name)
    sizes = f"{plan.needed >> 20:>7} {plan.available >> 20:>7} {plan.headroom >> 20:>8}"
    numbers = f"{plan.context.value:>6} {plan.prefill_chunk.value:>5} {plan.snapshots.value:>2}"
    return f"{name:<14} {plan.verdict:<13} {sizes} {numbers} {plan.kv_dtype.value}"


def test_every_profile() -> None:
    heading = "profile        verdict        needed   avail     left    ctx chunk snaps kv"
    assert [heading, *map(row, profile_names())] == TABLE.strip().splitlines()


@pytest.mark.parametrize("name", profile_names())
def test_a_plan_that_does_not_fit_says_what_would(name: str) -> None:
    plan, model = lightning(name)
    if plan.verdict != "does not fit":
        return
    others = [lightning(other)[0] for other in profile_names()]
    error = fit_error(plan, model, others)
    fitting = [other.profile for other in others if other.headroom >= 0]
    assert any(board in error.hint for board in fitting)
    assert "edgekit run nano" in error.hint
