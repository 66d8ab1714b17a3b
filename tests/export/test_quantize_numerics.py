"""Weight quantization against ModelOpt: its committed bytes, and itself where it is installed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt
import pytest

from edgekit.errors import CheckpointError
from edgekit.export.quantize import numerics
from edgekit.ops.formats import WeightFormat, dequantize
from tests.tools.modelopt_oracle import QUANTIZERS, modelopt_parts, weights

Array = npt.NDArray[Any]
GOLDEN = Path(__file__).with_name("quantize_golden.npz")
WEIGHTS = dict(weights())
FORMATS: dict[str, WeightFormat] = {
    "nvfp4": "nvfp4",
    "nvfp4_4o6": "nvfp4",
    "fp8": "fp8",
    "fp8_mse": "fp8",
    "int4_32": "int4",
    "int4_64": "int4",
}


def parts(quantizer: str, weight: Array) -> tuple[Array, ...]:
    amax = numerics.absolute_max(weight)
    if quantizer.startswith("nvfp4"):
        packed, scale, scale_2 = numerics.quantize_nvfp4(
            weight, amax, four_over_six=quantizer.endswith("4o6")
        )
        return packed, scale, np.asarray(scale_2)
    if quantizer.startswith("int4"):
        return numerics.quantize_int4(weight, int(quantizer[5:]))
    if quantizer == "fp8_mse":
        errors = numerics.fp8_errors(weight, amax)
        amax = numerics.fp8_amax(amax, errors, weight.dtype)
    codes, one_scale = numerics.quantize_fp8(weight, amax)
    return codes, np.asarray(one_scale)


def assert_same_bytes(actual: tuple[Array, ...], expected: tuple[Array, ...]) -> None:
    for i, (mine, theirs) in enumerate(zip(actual, expected, strict=True)):
        found, known = (np.frombuffer(part.tobytes(), np.uint8) for part in (mine, theirs))
        np.testing.assert_array_equal(found, known, err_msg=f"part {i}")


@pytest.fixture(scope="module")
def golden() -> dict[str, npt.NDArray[np.uint8]]:
    with np.load(GOLDEN) as file:
        return {name: file[name] for name in file.files}


@pytest.mark.parametrize("quantizer", QUANTIZERS)
def test_the_bytes_modelopt_exports(
    quantizer: str, golden: dict[str, npt.NDArray[np.uint8]]
) -> None:
    """Weights come from the file too: a generator's stream may change between NumPy versions."""
    at = source_at = 0
    for name, like in WEIGHTS.items():
        source = golden["weights"][source_at : source_at + like.nbytes]
        source_at += like.nbytes
        weight = np.frombuffer(source.tobytes(), like.dtype).reshape(like.shape)
        for i, part in enumerate(parts(quantizer, weight)):
            expected = golden[quantizer][at : at + part.nbytes]
            at += part.nbytes
            found = np.frombuffer(part.tobytes(), np.uint8)
            np.testing.assert_array_equal(found, expected, err_msg=f"{name}, part {i}")
    assert at == len(golden[quantizer])


@pytest.mark.slow
@pytest.mark.parametrize("quantizer", QUANTIZERS)
def test_larger_weights_where_modelopt_is_installed(quantizer: str) -> None:
    pytest.importorskip("modelopt.torch.quantization")
    for _, weight in weights((96, 1856)):
        expected = modelopt_parts(quantizer, weight)
        actual = parts(quantizer, weight)
        assert_same_bytes(actual, expected)


def undecided(weight: Array) -> npt.NDArray[np.bool_]:
    """Blocks [N, K/16] whose four-over-six scale the last place of float32 arithmetic decides.

    Either a candidate's scale lies on the border of two e4m3 values, or both candidates' squared
    errors are equal.
    """
    blocks = np.abs(weight.astype(np.float64)).reshape(len(weight), -1, 16)
    largest, amax = blocks.max(-1), blocks.max()
    border = np.zeros(largest.shape, bool)
    errors = []
    for multiplier in (1.0, 1.5):
        scale = largest * multiplier * 256 / amax
        below, rounded, above = (
            np.clip(np.float32(scale * (1 + step)), 0, 448).astype(ml_dtypes.float8_e4m3fn)
            for step in (-4e-7, 0, 4e-7)
        )
        border |= below != above
        step = rounded.astype(np.float64) * amax / (6 * 256)
        scaled = blocks / np.where(step == 0, 1, step)[..., None]
        nearest = numerics.E2M1_VALUES[numerics._nearest_e2m1(scaled.astype(np.float32))]
        errors.append(np.sum(np.square(blocks - nearest * step[..., None]), -1))
    tie = np.abs(errors[0] - errors[1]) <= 1e-5 * np.maximum(*errors)
    return np.asarray(border | tie)


def differing_share(weight: Array, scales: Array) -> float:
    """The share of blocks with another scale, all of which float32 leaves undecided."""
    differ = parts("nvfp4_4o6", weight)[1].view(np.uint8) != scales.view(np.uint8)
    assert not np.any(differ & ~undecided(weight))
    return float(np.mean(differ))


def test_four_over_six_as_the_real_kernel_chose() -> None:
    """Rows that hold the blocks in which ModelOpt on an H200 differs from ModelOpt on a CPU.

    CUDA divides by a number as times its reciprocal, and sums a block in another order.
    """
    with np.load(GOLDEN.with_name("quantize_golden_h200.npz")) as file:
        for name in ("uniform", "denormals"):
            weight = file[name].view(ml_dtypes.bfloat16)
            assert differing_share(weight, file[f"{name}.scales"]) > 0


@pytest.mark.gpu
def test_four_over_six_with_the_real_kernel() -> None:
    """On a GPU the choice between six and four is judged by ModelOpt's Triton kernel."""
    pytest.importorskip("modelopt.torch.quantization")
    if not pytest.importorskip("torch").cuda.is_available():
        pytest.skip("no GPU")
    for _, weight in weights((512, 1856)):
        _, scales, scale_2 = modelopt_parts("nvfp4_4o6", weight, "cuda")
        assert differing_share(weight, scales) < 0.02
        np.testing.assert_allclose(scale_2, parts("nvfp4_4o6", weight)[2], rtol=2e-7)


@pytest.mark.parametrize("quantizer", QUANTIZERS)
def test_zero_is_zero(quantizer: str) -> None:
    """ModelOpt itself makes NaN of an all-zero weight in fp8 and nvfp4."""
    values = dequantize(FORMATS[quantizer], *parts(quantizer, np.zeros((2, 64), np.float32)))
    np.testing.assert_array_equal(values, 0)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("dtype", [np.float32, np.float16, ml_dtypes.bfloat16])
def test_what_is_not_finite_is_refused(value: float, dtype: Any) -> None:
    weight = np.ones((4, 32), np.float32)
    weight[2, 7] = value
    with pytest.raises(CheckpointError, match=r"'lm_head\.weight' holds NaN") as caught:
        numerics.absolute_max(weight.astype(dtype), "lm_head.weight")
    assert caught.value.hint


@pytest.mark.parametrize("quantizer", ["nvfp4", "nvfp4_4o6", "fp8"])
def test_a_weight_without_a_scale_is_refused(quantizer: str) -> None:
    with pytest.raises(CheckpointError, match="no scale in float32"):
        parts(quantizer, np.full((1, 32), 1e-45, np.float32))


@pytest.mark.parametrize("quantizer", QUANTIZERS)
def test_pieces_of_rows_are_the_whole(quantizer: str) -> None:
    weight = WEIGHTS["outliers.bfloat16"]
    whole = parts(quantizer, weight)
    if quantizer == "fp8_mse":
        amax = numerics.absolute_max(weight)
        errors = sum(numerics.fp8_errors(piece, amax) for piece in np.array_split(weight, 5))
        amax = numerics.fp8_amax(amax, errors, weight.dtype)
        pieces = [numerics.quantize_fp8(piece, amax)[0] for piece in np.array_split(weight, 5)]
        np.testing.assert_array_equal(np.concatenate(pieces), whole[0])
        return
    amax = numerics.absolute_max(weight)
    results = []
    for piece in np.array_split(weight, 5):
        if quantizer.startswith("nvfp4"):
            results.append(
                numerics.quantize_nvfp4(piece, amax, four_over_six=quantizer.endswith("4o6"))[:2]
            )
        elif quantizer == "fp8":
            results.append((numerics.quantize_fp8(piece, amax)[0],))
        else:
            results.append(numerics.quantize_int4(piece, int(quantizer[5:])))
    for i, joined in enumerate(zip(*results, strict=True)):
        np.testing.assert_array_equal(np.concatenate(joined), whole[i])


def test_four_over_six_is_closer_on_gaussian_weights() -> None:
    weight = np.random.default_rng(1).standard_normal((256, 256)).astype(np.float32)
    errors = {
        name: float(np.mean(np.square(dequantize("nvfp4", *parts(name, weight)) - weight)))
        for name in ("nvfp4", "nvfp4_4o6")
    }
    assert errors["nvfp4_4o6"] < 0.9 * errors["nvfp4"]


@pytest.mark.parametrize(
    ("quantizer", "error"),
    [
        ("fp8", 0.027),
        ("nvfp4_4o6", 0.087),
        ("nvfp4", 0.095),
        ("int4_32", 0.097),
        ("int4_64", 0.108),
        ("int4_128", 0.117),
    ],
)
def test_the_errors_that_the_documentation_states(quantizer: str, error: float) -> None:
    weight = np.random.default_rng(9).standard_normal((256, 1024), np.float32)
    values = dequantize(FORMATS[quantizer.replace("128", "64")], *parts(quantizer, weight))
    found = np.linalg.norm(values - weight) / np.linalg.norm(weight)
    assert found == pytest.approx(error, abs=0.001)
