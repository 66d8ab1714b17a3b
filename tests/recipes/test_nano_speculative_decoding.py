"""Drafts at work: exact acceptance, unchanged greedy text, and training that raises acceptance."""

import json
from collections import Counter
from dataclasses import dataclass

import pytest

torch = pytest.importorskip("torch")

from edgekit.recipes.nano.speculative import acceptance, train_draft  # noqa: E402
from edgekit.recipes.nano.speculative.config import DraftConfig  # noqa: E402
from edgekit.recipes.nano.speculative.dspark import DSpark  # noqa: E402
from edgekit.recipes.nano.speculative.figures import summarise  # noqa: E402
from edgekit.recipes.nano.speculative.mtp import Mtp  # noqa: E402
from edgekit.recipes.nano.speculative.objective import (  # noqa: E402
    choose_anchors,
    draft_loss,
    target_logits,
)
from edgekit.recipes.nano.speculative.proposers import (  # noqa: E402
    Lookup,
    Proposal,
    Trained,
    look_up,
)
from edgekit.recipes.nano.speculative.simulate import (  # noqa: E402
    Decoding,
    Round,
    plain_greedy,
    speculate,
)
from edgekit.recipes.nano.speculative.target import read_target  # noqa: E402
from edgekit.recipes.nano.speculative.verify import accept_greedy, accept_sampled  # noqa: E402
from tests.recipes.test_nano_speculative_layout import tiny_target  # noqa: E402

SYMBOLS = 16


def chances(rows, seed):
    torch.manual_seed(seed)
    return (2 * torch.randn(rows, 5)).softmax(-1).double()


def within(observed, expected, count, deviations=4.0):
    """True if a share observed in ``count`` draws is that close to the expected one."""
    spread = (expected * (1 - expected) / count) ** 0.5
    return abs(observed - expected) <= deviations * spread + 1e-9


def test_greedy_acceptance_counts_the_matching_prefix():
    best = torch.tensor([[1, 2, 3, 4], [1, 2, 3, 4], [9, 2, 3, 4], [1, 2, 3, 4]])
    drafted = torch.tensor([[1, 2, 3], [1, 7, 3], [1, 2, 3], [1, 2, 3]])
    kept, following = accept_greedy(best, drafted, torch.tensor([3, 3, 3, 1]))
    assert kept.tolist() == [3, 1, 0, 1]
    assert following.tolist() == [4, 2, 9, 2]


@pytest.mark.parametrize("one_hot", [False, True])
def test_sampled_acceptance_has_the_theoretical_rate_and_keeps_the_distribution(one_hot):
    count = 40_000
    p, q = chances(3, 0), chances(2, 1)
    generator = torch.Generator().manual_seed(2)
    drafted = torch.stack([torch.multinomial(r, count, True, generator=generator) for r in q], 1)
    if one_hot:
        drafted[:] = torch.tensor([3, 1])
    kept, following = accept_sampled(
        p.expand(count, -1, -1), None if one_hot else q.expand(count, -1, -1), drafted,
        torch.full((count,), 2), generator,
    )  # fmt: skip
    first = float(p[0, 3] if one_hot else torch.minimum(p[0], q[0]).sum())
    second = float(p[1, 1] if one_hot else torch.minimum(p[1], q[1]).sum())
    assert within((kept >= 1).double().mean().item(), first, count)
    assert within((kept >= 2).double().mean().item(), first * second, count)
    # With context-free p every emitted token must follow p of its place.
    outputs = [torch.where(kept > i, drafted[:, i], following)[kept >= i] for i in range(2)] + [
        following[kept == 2]
    ]
    for place, tokens in enumerate(outputs):
        shares = torch.bincount(tokens, minlength=5).double() / len(tokens)
        for token in range(5):
            assert within(shares[token].item(), p[place, token].item(), len(tokens))


def test_no_draft_is_plain_sampling():
    p = chances(3, 4)
    generator = torch.Generator().manual_seed(0)
    drafted = torch.zeros(20_000, 2, dtype=torch.long)
    offered = torch.zeros(20_000, dtype=torch.long)
    kept, following = accept_sampled(p.expand(20_000, -1, -1), None, drafted, offered, generator)
    assert not kept.any()
    shares = torch.bincount(following, minlength=5).double() / 20_000
    assert all(within(shares[t].item(), p[0, t].item(), 20_000) for t in range(5))


def test_lookup_proposes_what_followed_the_latest_longest_match():
    assert look_up([1, 2, 3, 9, 1, 2, 3, 8, 5, 1, 2, 3], 3, 4) == [8, 5, 1, 2]
    assert look_up([7, 1, 7], 3, 4) == [1, 7]
    assert look_up([1, 2, 3], 3, 4) == []


def test_figures_count_what_the_rounds_say():
    rounds = [
        Round(0, 3, 3, 3, 4),
        Round(0, 3, 1, 3, 2),
        Round(1, 0, 0, 3, 1),
        Round(1, 3, 2, 2, 2),
    ]
    figures = summarise(rounds, 2, 3)
    assert figures["tokens a round"]["mean"] == 9 / 4
    assert figures["tokens a round, replies' ends left out"]["mean"] == round(7 / 3, 4)
    assert [p["rounds"] for p in figures["positions"]] == [4, 4, 3]
    assert [p["kept"]["share"] for p in figures["positions"]] == [0.75, 0.5, 0.3333]
    assert [p["offered"] for p in figures["positions"]] == [3, 3, 1]
    assert figures["drafted tokens"] == 8
    assert figures["accepted tokens"] == 6


def test_anchors_stay_where_every_label_is_supervised():
    torch.manual_seed(0)
    tokens = torch.arange(40).repeat(3, 1)
    supervised = torch.zeros(3, 40, dtype=torch.bool)
    supervised[0, 10:20] = True
    supervised[1, 0:3] = True
    anchors = choose_anchors(tokens, supervised, 20, 7)
    for b in range(3):
        live = anchors.weights[b, :, 0] > 0
        chosen = sorted(anchors.positions[b][live].tolist())
        assert chosen == [list(range(10, 19)), [1], []][b]
    at = int((anchors.positions[0] == 15).nonzero()[0, 0])
    assert anchors.labels[0, at].tolist() == [16, 17, 18, 19, 20, 21, 22]
    assert (anchors.weights[0, at] > 0).tolist() == [True] * 4 + [False] * 3


# -- a target that has learnt a sparse Markov source


def source(rows, length, seed):
    """A Markov source over SYMBOLS tokens, three followers with 0.85, 0.1 and 0.05."""
    generator = torch.Generator().manual_seed(9)
    followers = torch.stack(
        [torch.randperm(SYMBOLS, generator=generator)[:3] for _ in range(SYMBOLS)]
    )
    generator.manual_seed(seed)
    text = torch.randint(0, SYMBOLS, (rows, 1), generator=generator)
    weights = torch.tensor([0.85, 0.1, 0.05]).expand(rows, -1)
    for _ in range(length - 1):
        pick = torch.multinomial(weights, 1, generator=generator)
        following = followers[text[:, -1]].gather(1, pick)
        text = torch.cat([text, following], 1)
    return text


@dataclass
class Toy:
    target: object
    dspark: DSpark
    mtp: Mtp
    prompts: list
    plain: list | None = None


def fit(params, steps, lr, loss):
    optimizer = torch.optim.AdamW(params, lr=lr, weight_decay=0.0)
    for step in range(steps):
        for group in optimizer.param_groups:
            group["lr"] = lr * min(1.0, (step + 1) / 10, 1.2 * (1 - step / steps))
        loss(step).backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)


@pytest.fixture(scope="module")
def toy():
    target = tiny_target(vocab=24).requires_grad_(True)
    data = source(1024, 33, 1)

    def target_loss(step):
        rows = data[(torch.arange(32) + 32 * step) % 1024]
        return target.loss(rows, torch.ones(32, 32))[0]

    fit(list(target.parameters()), 80, 1e-2, target_loss)
    target.requires_grad_(False)
    torch.manual_seed(0)
    config = DraftConfig.for_target(
        target.config, 3, head_dim=8, intermediate_size=48, sliding_window=12, markov_rank=8
    )
    dspark, mtp = DSpark(config, target), Mtp(target)

    def draft_losses(step):
        rows = data[(torch.arange(12) + 12 * step) % 1024]
        anchors = choose_anchors(rows, torch.ones_like(rows, dtype=torch.bool), 6, 7)
        features = read_target(target, rows, config.target_layer_ids)
        wanted = target_logits(features, target.lm_head, anchors)
        total = torch.zeros(())
        for draft, slots in ((dspark, 7), (mtp, 3)):
            logits = draft.draft(
                features, rows, anchors.positions, slots, lambda s, _: anchors.labels[..., s]
            )
            total = total + draft_loss(logits, wanted, anchors)[0]
        return total

    fit([*dspark.parameters(), *mtp.parameters()], 60, 1e-2, draft_losses)
    mtp.centre()
    return Toy(target, dspark, mtp, [r.tolist() for r in source(48, 12, 77)])


def decoding(toy, temperature=0.0, k=7):
    layers = toy.dspark.config.target_layer_ids
    return Decoding(k, 24, frozenset({3}), layers, temperature, 5)


def mean_length(toy, proposer, temperature):
    rounds, _ = speculate(toy.target, proposer, toy.prompts, decoding(toy, temperature))
    return sum(r.tokens for r in rounds) / len(rounds)


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_training_raises_acceptance_far_above_an_untrained_draft(toy, temperature):
    torch.manual_seed(1)
    untrained = mean_length(toy, Trained(DSpark(toy.dspark.config, toy.target)), temperature)
    dspark = mean_length(toy, Trained(toy.dspark), temperature)
    mtp = mean_length(toy, Trained(toy.mtp), temperature)
    print(f"T={temperature}: untrained {untrained:.2f}, DSpark {dspark:.2f}, MTP {mtp:.2f}")
    assert untrained < 1.5
    assert dspark > untrained + 0.8
    assert mtp > untrained + 0.8


@pytest.mark.parametrize("name", ["dspark", "mtp", "lookup", "untrained"])
@pytest.mark.parametrize("k", [1, 3, 7])
def test_greedy_speculation_writes_the_text_of_plain_decoding(toy, name, k):
    torch.manual_seed(1)
    proposer = {
        "dspark": Trained(toy.dspark),
        "mtp": Trained(toy.mtp),
        "lookup": Lookup(),
        "untrained": Trained(DSpark(toy.dspark.config, toy.target)),
    }[name]
    prompts = [p[: 5 + i % 8] for i, p in enumerate(toy.prompts[:12])]
    how = decoding(toy, k=k)
    rounds, replies = speculate(toy.target, proposer, prompts, how)
    toy.plain = toy.plain or [plain_greedy(toy.target, p, how) for p in prompts]
    counts = acceptance.compare(toy.plain, replies, how.limit)
    assert counts == {"equal": 12, "near tie": 0, "wrong": 0}
    added = Counter()
    for r in rounds:
        added[r.prompt] += r.tokens
        assert r.kept <= r.tried <= k
    assert all(added[i] + 1 == len(reply) for i, reply in enumerate(replies))


def test_compare_finds_a_changed_text():
    plain = [([1, 2, 3], [1.0, 1e-5, 1.0])] * 4
    counts = acceptance.compare(plain, [[1, 2, 3], [1, 9, 3], [1, 2, 9], [1, 2]], 8)
    assert counts == {"equal": 1, "near tie": 1, "wrong": 2}


def test_sampled_rounds_accept_the_overlap_of_both_distributions(toy):
    """Position 1 is kept with probability sum min(p, q), averaged over the rounds themselves."""
    overlaps = []

    class Watched:
        def propose(self, features, tokens, anchors, k, temperature, generator):
            made: Proposal = Trained(toy.dspark).propose(
                features, tokens, anchors, k, temperature, generator
            )
            p = toy.target(tokens)[torch.arange(len(anchors)), anchors].softmax(-1)
            overlaps.extend(torch.minimum(p, made.probabilities[:, 0]).sum(-1).tolist())
            return made

    with torch.no_grad():
        rounds, _ = speculate(toy.target, Watched(), toy.prompts, decoding(toy, 1.0, 3))
    assert len(rounds) == len(overlaps) > 100
    expected = sum(overlaps) / len(overlaps)
    assert within(sum(r.kept >= 1 for r in rounds) / len(rounds), expected, len(rounds))


def test_sampled_speculation_keeps_the_targets_distribution(toy):
    """Pairs of tokens after one prompt: speculation against exact probabilities."""
    count, prompt = 1500, toy.prompts[0]
    how = Decoding(3, 3, frozenset(), toy.dspark.config.target_layer_ids, 1.0, 1)
    _, replies = speculate(toy.target, Trained(toy.dspark), [prompt] * count, how)
    pairs = Counter((r[1], r[2]) for r in replies if r[0] == replies[0][0])
    total = sum(pairs.values())
    start = [*prompt, replies[0][0]]
    with torch.no_grad():
        first = toy.target(torch.tensor([start]))[0, -1].softmax(-1)
        each = torch.tensor([[*start, t] for t in range(24)])
        second = toy.target(each)[:, -1].softmax(-1)
    expected = {
        (a, b): total * float(first[a] * second[a, b]) for a in range(24) for b in range(24)
    }
    common = [pair for pair, count in expected.items() if count >= 5]
    rest = total - sum(expected[pair] for pair in common)
    cells = [(pairs[pair], expected[pair]) for pair in common]
    cells.append((total - sum(pairs[pair] for pair in common), rest))
    chi_square = sum((seen - wanted) ** 2 / wanted for seen, wanted in cells)
    freedom = len(cells) - 1
    assert freedom > 5
    assert chi_square < freedom + 4 * (2 * freedom) ** 0.5


def test_command_lines_train_resume_merge_and_measure(tmp_path, capsys, monkeypatch):
    """The whole way on the committed tokenizer and a tiny target, a few steps each."""
    pytest.importorskip("tokenizers")
    from tokenizers import Tokenizer

    from edgekit.recipes.nano.checkpoint import save_checkpoint
    from edgekit.recipes.nano.prepare import CHECKPOINT

    torch.arange(5000, dtype=torch.int16).numpy().tofile(tmp_path / "docs.bin")
    vocab = Tokenizer.from_file(str(CHECKPOINT / "tokenizer.json")).get_vocab_size()
    folder = tmp_path / "target"
    save_checkpoint(tiny_target(vocab=vocab), folder)
    (folder / "tokenizer.json").write_bytes((CHECKPOINT / "tokenizer.json").read_bytes())
    out, ablations = tmp_path / "out", tmp_path / "ablations"
    base = [
        "train", "--data", str(tmp_path), "--checkpoint", str(folder), "--out", str(out),
        "--ablations", str(ablations), "--minutes", "1", "--rows", "2", "--length", "64",
        "--anchors", "4", "--layers", "1", "--intermediate", "32", "--rank", "4", "--taps", "3",
        "--window", "16", "--workers", "0", "--device", "cpu", "--max-steps", "2",
    ]  # fmt: skip
    monkeypatch.setattr("sys.argv", base)
    train_draft.main()
    monkeypatch.setattr(
        "sys.argv", [*base, "--resume", str(out), "--drafts", "dspark", "mtp", "--merge"]
    )
    train_draft.main()
    assert json.loads((folder / "config.json").read_text())["num_nextn_predict_layers"] == 1
    assert json.loads((out / "training.json").read_text())["steps"] == 2
    monkeypatch.setattr("sys.argv", [
        "acceptance", "--drafts", str(out), "--ablations", str(ablations), "--checkpoint",
        str(folder), "--prompts", "3", "--limit", "6", "--check", "3", "--device", "cpu",
        "--json", str(tmp_path / "figures.json"),
    ])  # fmt: skip
    acceptance.main()
    figures = json.loads((tmp_path / "figures.json").read_text())
    assert list(figures["methods"]) == [
        "dspark", "dspark-no-markov", "dflash", "dspark, head off", "mtp", "n-gram", "untrained",
    ]  # fmt: skip
    for method in figures["methods"].values():
        assert method["equal to plain greedy"]["wrong"] == 0
        assert len(method["T=1"]["positions"]) == 7
    assert "tokens a round" in capsys.readouterr().out
