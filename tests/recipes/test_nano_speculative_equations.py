"""Drafts as equations: masks, sinks, windows and recursion, against naive code and mlx-dspark."""

import importlib.util
import itertools
import json
import math
import sys
import types

import pytest

torch = pytest.importorskip("torch")

from edgekit.recipes.nano.model import Cache  # noqa: E402
from edgekit.recipes.nano.speculative.config import config_json  # noqa: E402
from edgekit.recipes.nano.speculative.dspark import block_mask  # noqa: E402
from edgekit.recipes.nano.speculative.mtp import Mtp  # noqa: E402
from edgekit.recipes.nano.speculative.target import Features, read_target  # noqa: E402
from tests.recipes.test_nano_speculative_layout import tiny_draft, tiny_target  # noqa: E402

WIDTH = 30


@pytest.fixture
def target():
    return tiny_target()


def case(target, draft, batch=2):
    torch.manual_seed(3)
    tokens = torch.randint(0, 64, (batch, WIDTH))
    features = read_target(target, tokens, draft.config.target_layer_ids)
    return tokens, Features(features.hidden * 3, features.taps + torch.randn_like(features.taps))


@torch.no_grad()
def test_taps_are_the_residual_stream_after_the_layer(target):
    tokens = torch.randint(0, 64, (2, 12))
    h = target.backbone.embeddings(tokens)
    after = []
    for i, block in enumerate(target.backbone.layers):
        u = block.norm(h)
        h = h + (block.mixer(u)[0] if block.kind == "E" else block.mixer(u, None, i))
        after.append(h)
    features = read_target(target, tokens, (0, 2, 3))
    wanted = torch.cat([after[0], after[2], after[3]], -1)  # the last one before the final norm
    assert torch.allclose(features.taps, wanted, atol=1e-6)
    assert torch.allclose(features.hidden, target.backbone.norm_f(h), atol=1e-6)
    assert not target.backbone.norm_f._forward_pre_hooks


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("window", [None, 3, 6])
def test_block_mask_is_the_stated_rule(target, causal, window):
    config = tiny_draft(target, causal=causal, sliding_window=window).config
    anchors = torch.tensor([[1, 7, 4], [9, 2, 8]])
    rows, context = 4, 10
    mask = block_mask(anchors, rows, context, config)
    for b, n, j in itertools.product(range(2), range(3), range(rows)):
        a = int(anchors[b, n])
        at = a + j
        for key in range(context):
            seen = key < a and (window is None or key > at - window)
            assert mask[b, n, j, key] == seen
        for m in range(rows):
            seen = (m <= j or not causal) and (window is None or a + m > at - window)
            assert mask[b, n, j, context + m] == seen


@torch.no_grad()
def rows_of(draft, tokens, features, anchors, slots=7):
    context = draft.context(features.taps)
    return draft.block(tokens.gather(1, anchors), anchors, context, slots)


@torch.no_grad()
def test_a_causal_block_may_be_cut_short(target):
    draft = tiny_draft(target)
    tokens, features = case(target, draft)
    anchors = torch.tensor([[20, 5], [11, 22]])
    full = rows_of(draft, tokens, features, anchors)
    assert torch.allclose(rows_of(draft, tokens, features, anchors, 3), full[:, :, :3], atol=1e-5)


@torch.no_grad()
@pytest.mark.parametrize("causal", [True, False])
def test_a_later_row_reaches_earlier_rows_only_without_causality(target, causal):
    draft = tiny_draft(target, causal=causal)
    tokens, features = case(target, draft)
    anchors = torch.tensor([[20], [11]])
    before = rows_of(draft, tokens, features, anchors)
    embed = draft.shared[0]

    def disturbed(ids):
        out = embed(ids).clone()
        out[:, 5] += 1.0  # row 5 of the block, the fifth slot
        return out

    draft.shared = (disturbed, draft.shared[1])
    change = (rows_of(draft, tokens, features, anchors) - before).abs().amax((0, 1, 3))
    assert (change[4:] > 1e-3).all()
    assert (change[:4] < 1e-6).all() == causal


@torch.no_grad()
def test_the_block_sees_exactly_the_window_before_its_anchor(target):
    draft = tiny_draft(target)  # window 9
    tokens, features = case(target, draft, 1)
    anchors = torch.tensor([[20]])
    before = rows_of(draft, tokens, features, anchors)
    for position in range(WIDTH):
        taps = features.taps.clone()
        taps[:, position] += 1.0
        moved = Features(features.hidden, taps)
        change = (rows_of(draft, tokens, moved, anchors) - before).abs().max()
        assert (change > 1e-4) == (20 - 9 < position < 20), position


@torch.no_grad()
def test_only_distances_matter(target):
    draft = tiny_draft(target)
    tokens, features = case(target, draft, 1)
    shifted = Features(features.hidden, features.taps[:, 4:])
    here = rows_of(draft, tokens, features, torch.tensor([[20]]))
    there = rows_of(draft, tokens[:, 4:], shifted, torch.tensor([[16]]))
    assert torch.allclose(here, there, atol=1e-4)


@torch.no_grad()
def test_context_may_come_in_pieces(target):
    draft = tiny_draft(target)
    tokens, features = case(target, draft)
    anchors = torch.tensor([[20], [14]])
    parts = [draft.context(features.taps[:, :13]), draft.context(features.taps[:, 13:], start=13)]
    joined = [
        (torch.cat([a[0], b[0]], 2), torch.cat([a[1], b[1]], 2))
        for a, b in zip(*parts, strict=True)
    ]
    got = draft.block(tokens.gather(1, anchors), anchors, joined, 7)
    assert torch.allclose(got, rows_of(draft, tokens, features, anchors), atol=1e-5)


@torch.no_grad()
def test_a_sink_takes_weight_and_adds_no_value(target):
    draft = tiny_draft(target)
    tokens, features = case(target, draft)
    anchors = torch.tensor([[20], [14]])
    with_sinks = rows_of(draft, tokens, features, anchors)
    for layer in draft.layers:
        layer.self_attn.attention_sink_bias.fill_(-1e4)
    silent = rows_of(draft, tokens, features, anchors)
    assert (with_sinks - silent).abs().max() > 1e-2
    for layer in draft.layers:
        layer.self_attn.attention_sink_bias = None
    assert torch.allclose(rows_of(draft, tokens, features, anchors), silent, atol=1e-6)


def naive_rows(draft, anchor_token, position, taps):
    """Section by section in float64, one sequence, one row and one head at a time."""
    config = draft.config
    state = {k: v.double() for k, v in draft.state_dict().items()}
    embed = draft.shared[0].weight.double()

    def norm(x, weight):
        return x / (x.square().mean(-1, keepdim=True) + config.rms_norm_eps).sqrt() * weight

    def rope(x, at):
        half = len(x) // 2
        out = x.clone()
        for i in range(half):
            angle = at * config.rope_theta ** (-i / half)
            out[i] = x[i] * math.cos(angle) - x[i + half] * math.sin(angle)
            out[i + half] = x[i + half] * math.cos(angle) + x[i] * math.sin(angle)
        return out

    d, group = config.head_dim, config.num_attention_heads // config.num_key_value_heads
    context = norm(taps[:position].double() @ state["fc.weight"].T, state["hidden_norm.weight"])
    x = embed[[anchor_token] + [config.mask_token_id] * config.slots]
    for i in range(config.num_hidden_layers):
        w = {k.removeprefix(f"layers.{i}."): v for k, v in state.items() if f"layers.{i}." in k}
        a = norm(x, w["input_layernorm.weight"])
        keys, values = [], []  # by position, [kv heads, d]
        for at, row in enumerate(torch.cat([context, a])):
            k = norm((w["self_attn.k_proj.weight"] @ row).view(-1, d), w["self_attn.k_norm.weight"])
            keys.append([rope(h, at) for h in k])
            values.append((w["self_attn.v_proj.weight"] @ row).view(-1, d))
        mixed = []
        for j in range(len(x)):
            at = position + j
            q = norm(
                (w["self_attn.q_proj.weight"] @ a[j]).view(-1, d), w["self_attn.q_norm.weight"]
            )
            heads = []
            for h in range(config.num_attention_heads):
                span = range(max(0, at - config.sliding_window + 1), at + 1)
                scores = [float(rope(q[h], at) @ keys[t][h // group]) / d**0.5 for t in span]
                sink = math.exp(float(w["self_attn.attention_sink_bias"][h]))
                total = sink + sum(map(math.exp, scores))
                parts = zip(scores, span, strict=True)
                heads.append(sum(math.exp(s) / total * values[t][h // group] for s, t in parts))
            mixed.append(w["self_attn.o_proj.weight"] @ torch.cat(heads))
        x = x + torch.stack(mixed)
        y = norm(x, w["post_attention_layernorm.weight"])
        gate = torch.nn.functional.silu(y @ w["mlp.gate_proj.weight"].T)
        x = x + (gate * (y @ w["mlp.up_proj.weight"].T)) @ w["mlp.down_proj.weight"].T
    return norm(x, state["norm.weight"])[1:]


@torch.no_grad()
def test_block_equals_the_naive_equations(target):
    draft = tiny_draft(target)
    tokens, features = case(target, draft)
    anchors = torch.tensor([[20], [6]])
    got = rows_of(draft, tokens, features, anchors)
    for b in range(2):
        at = int(anchors[b, 0])
        wanted = naive_rows(draft, int(tokens[b, at]), at, features.taps[b])
        assert (got[b, 0] - wanted).abs().max() < 1e-4


@torch.no_grad()
def test_markov_head_adds_the_bigram_of_the_token_before(target):
    draft = tiny_draft(target)
    tokens, features = case(target, draft)
    anchors = torch.tensor([[20], [14]])
    rows = rows_of(draft, tokens, features, anchors)
    picked = []

    def choose(_, logits):
        picked.append(logits.argmax(-1))
        return picked[-1]

    logits = draft.draft(features, tokens, anchors, 7, choose)
    before = torch.stack([tokens.gather(1, anchors), *picked[:-1]], 2)
    w1, w2 = draft.markov_head.markov_w1.weight, draft.markov_head.markov_w2.weight
    wanted = rows @ target.lm_head.weight.T + w1[before] @ w2.T
    assert torch.allclose(logits, wanted, atol=1e-4)


@torch.no_grad()
def test_mtp_equals_decoding_with_a_cache(target):
    torch.manual_seed(2)
    mtp = Mtp(target).eval()
    tokens = torch.randint(0, 64, (1, WIDTH))
    hidden = read_target(target, tokens, (1,)).hidden
    anchors = torch.tensor([[9, 20]])
    features = Features(hidden, hidden)
    picked = []

    def choose(_, logits):
        picked.append(logits.argmax(-1))
        return picked[-1]

    got = mtp.draft(features, tokens, anchors, 4, choose)
    embed, lm_head = mtp.shared
    for column, anchor in enumerate(anchors[0].tolist()):
        cache = Cache()

        def step(token_rows, hidden_rows, cache=cache):
            first, second = mtp.first, mtp.second
            both = [first.enorm(embed(token_rows)), first.hnorm(hidden_rows)]
            x = first.eh_proj(torch.cat(both, -1))
            x = x + first.mixer(first.norm(x), cache, 0)
            x = x + second.mixer(second.norm(x))[0]
            return second.final_layernorm(x)[:, -1:]

        m = step(tokens[:, 1 : anchor + 1], hidden[:, :anchor])
        for slot in range(4):
            assert torch.allclose(got[0, column, slot], lm_head(m)[0, 0], atol=1e-4)
            m = step(picked[slot][:, column : column + 1], m)


@torch.no_grad()
def test_mtp_final_norm_is_rms_and_layer_norm_at_once(target):
    mtp = Mtp(target)
    for p in mtp.parameters():
        p.add_(0.1 * torch.randn_like(p))
    mtp.centre()
    seen = []
    final = mtp.second.final_layernorm
    hook = final.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
    tokens = torch.randint(0, 64, (1, WIDTH))
    features = read_target(target, tokens, (1,))
    mtp.draft(features, tokens, torch.tensor([[9, 20]]), 3, lambda s, x: x.argmax(-1))
    hook.remove()
    for x in seen:
        layer_norm = torch.nn.functional.layer_norm(x, x.shape[-1:], final.weight, None, final.eps)
        assert torch.allclose(layer_norm, final(x), atol=1e-4)


def mlx_drafter(monkeypatch):
    """mlx-dspark's drafter without its package __init__, which wants the whole MLX stack."""
    mx = pytest.importorskip("mlx.core")
    spec = importlib.util.find_spec("mlx_dspark")
    if spec is None or spec.submodule_search_locations is None:
        pytest.skip("mlx-dspark is not installed")
    package = types.ModuleType("mlx_dspark")
    package.__path__ = list(spec.submodule_search_locations)
    rope = types.ModuleType("mlx_vlm.models.rope_utils")

    def initialize_rope(dims, base, traditional, scaling_config=None):
        return importlib.import_module("mlx.nn").RoPE(dims, traditional=traditional, base=base)

    rope.initialize_rope = initialize_rope
    for name, module in {
        "mlx_dspark": package,
        "mlx_vlm": types.ModuleType("mlx_vlm"),
        "mlx_vlm.models": types.ModuleType("mlx_vlm.models"),
        "mlx_vlm.models.rope_utils": rope,
    }.items():
        monkeypatch.setitem(sys.modules, name, module)
    config = importlib.import_module("mlx_dspark.config").DSparkConfig
    return mx, config, importlib.import_module("mlx_dspark.model").DSparkDrafter


@torch.no_grad()
def test_block_and_markov_head_equal_mlx_dspark(target, monkeypatch, tmp_path):
    mx, config_class, drafter_class = mlx_drafter(monkeypatch)
    draft = tiny_draft(target)
    (tmp_path / "config.json").write_text(json.dumps(config_json(draft.config)))
    config = config_class.from_json(tmp_path / "config.json")
    assert (config.causal_block, config.attention_sink, config.logits_start) == (True, True, 1)
    assert config.sliding_window == 9
    config.has_own_embed = False
    theirs = drafter_class(config)
    weights = {k: mx.array(v.numpy()) for k, v in draft.state_dict().items()}
    theirs.load_weights(list(weights.items()))
    embed, head = (mx.array(m.weight.numpy()) for m in (target.backbone.embeddings, target.lm_head))
    theirs.bind_embed(lambda ids: embed[ids])
    theirs.bind_lm_head(lambda x: x @ head.T)

    tokens, features = case(target, draft, 1)
    caches = theirs.make_ctx_cache()
    for start, end in ((0, 13), (13, 20)):
        theirs.update_context(mx.array(features.taps[:, start:end].numpy()), start, caches)
    ids = [int(tokens[0, 20])] + [draft.config.mask_token_id] * 7
    hidden = theirs.backbone(theirs.embed(mx.array([ids])), 20, caches)
    rows = theirs.head_slice(hidden, 7)
    ours = rows_of(draft, tokens, features, torch.tensor([[20]]))
    assert abs(ours[0, 0].numpy() - rows[0].__array__()).max() < 1e-4

    their_tokens = theirs.sample_block(theirs.compute_logits(rows)[0], ids[0])
    picked = []

    def choose(_, logits):
        picked.append(logits.argmax(-1))
        return picked[-1]

    draft.draft(features, tokens, torch.tensor([[20]]), 7, choose)
    assert their_tokens.tolist() == torch.stack(picked).flatten().tolist()
