"""Measure how many drafted tokens the target keeps, on held-out prompts.

    python -m edgekit.recipes.nano.speculative.acceptance --drafts DIR [--ablations DIR] [--json F]

Methods: DSpark, DSpark trained without its Markov head, DSpark with the trained head switched off,
DFlash, MTP, n-gram lookup and an untrained DSpark, each at greedy and at temperature 1 (exact
rejection sampling). Methods whose files are missing are left out. Greedy speculation must give the
text of plain greedy decoding: the exit status is 1 if it does not (a step whose two best logits lie
within NEAR_TIE is not counted as a difference).
"""

import argparse
import json
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer

from edgekit.recipes.nano.checkpoint import load_checkpoint
from edgekit.recipes.nano.model import NemotronH
from edgekit.recipes.nano.prepare import CHECKPOINT
from edgekit.recipes.nano.speculative.config import DraftConfig
from edgekit.recipes.nano.speculative.dspark import DSpark
from edgekit.recipes.nano.speculative.figures import by_skill, summarise
from edgekit.recipes.nano.speculative.files import MTP_FILE, load_draft, load_mtp
from edgekit.recipes.nano.speculative.prompts import held_out_prompts
from edgekit.recipes.nano.speculative.proposers import Lookup, Proposer, Trained
from edgekit.recipes.nano.speculative.simulate import Decoding, Round, plain_greedy, speculate
from edgekit.recipes.nano.tokenizer import EOS, IM_END, SPECIALS

NEAR_TIE = 1e-3


def proposers(
    target: NemotronH, drafts: Path, ablations: Path
) -> tuple[dict[str, Proposer], tuple[int, ...]]:
    """(every method whose files are there, by name; the layers that the drafts tap)."""
    device = target.lm_head.weight.device
    found: dict[str, Proposer] = {}
    config = DraftConfig.for_target(target.config)
    if (drafts / "dspark").exists():
        full = load_draft(drafts / "dspark", target).to(device).eval()
        config = full.config
        found["dspark"] = Trained(full)
    for name in ("dspark-no-markov", "dflash"):
        if (ablations / name).exists():
            found[name] = Trained(load_draft(ablations / name, target).to(device).eval())
    if "dspark" in found:
        off = load_draft(drafts / "dspark", target).to(device).eval()
        off.markov_head = None
        found["dspark, head off"] = Trained(off)
    if (drafts / MTP_FILE).exists():
        found["mtp"] = Trained(load_mtp(drafts / MTP_FILE, target).to(device).eval())
    found["n-gram"] = Lookup()
    found["untrained"] = Trained(DSpark(config, target).to(device).eval())
    for proposer in found.values():
        if isinstance(proposer, Trained) and isinstance(proposer.draft, DSpark):
            assert proposer.draft.config.target_layer_ids == config.target_layer_ids
    return found, config.target_layer_ids


def run(
    model: NemotronH, proposer: Proposer, prompts: list[list[int]], how: Decoding, batch: int
) -> tuple[list[Round], list[list[int]]]:
    """Rounds and replies of all prompts, read in batches of similar length."""
    order = sorted(range(len(prompts)), key=lambda i: len(prompts[i]))
    rounds: list[Round] = []
    replies: list[list[int]] = [[] for _ in prompts]
    for start in range(0, len(order), batch):
        part = order[start : start + batch]
        made, said = speculate(model, proposer, [prompts[i] for i in part], how)
        rounds += [replace(r, prompt=part[r.prompt]) for r in made]
        for i, reply in zip(part, said, strict=True):
            replies[i] = reply
    return rounds, replies


def compare(
    plain: list[tuple[list[int], list[float]]], replies: list[list[int]], limit: int
) -> dict[str, int]:
    """How many replies equal plain decoding, part from it at a near tie, or are wrong."""
    counts = {"equal": 0, "near tie": 0, "wrong": 0}
    for (wanted, margins), reply in zip(plain, replies, strict=False):
        pairs = list(zip(wanted, reply[:limit], strict=False))
        first = next((i for i, (a, b) in enumerate(pairs) if a != b), None)
        if first is None:
            counts["equal" if len(wanted) == len(reply[:limit]) else "wrong"] += 1
        else:
            counts["near tie" if margins[first] < NEAR_TIE else "wrong"] += 1
    return counts


def table(results: dict[str, dict[str, Any]], mode: str, k: int) -> str:
    """One line a method: tokens a round, and kept share by position, with 95 % intervals."""
    heads = "".join(f"{i:>7d}" for i in range(1, k + 1))
    lines = [f"{mode}", f"{'method':18s} tokens a round (95 %)   rounds drafted {heads}"]
    for name, result in results.items():
        s = result[mode]
        length = s["tokens a round"]
        if length is None:
            continue
        low, high = length["interval"]
        kept = [p["kept"] for p in s["positions"]]
        shares = "".join(f"{p['share']:7.3f}" if p else "      -" for p in kept)
        widths = "".join(
            f"{(p['interval'][1] - p['interval'][0]) / 2:7.3f}" if p else "      -" for p in kept
        )
        lines.append(
            f"{name:18s} {length['mean']:6.3f} ({low:.3f}-{high:.3f}) {s['rounds']:8d} "
            f"{s['drafted tokens']:7d} {shares}"
        )
        lines.append(f"{'':18s} {'':14s} {'':17s} +- {'':4s}{widths}")
    return "\n".join(lines)


def measure(args: argparse.Namespace) -> tuple[dict[str, Any], str]:
    """(all figures, printed tables)."""
    torch.manual_seed(args.seed)
    target = load_checkpoint(args.checkpoint).to(args.device).eval().requires_grad_(False)
    tokenizer = Tokenizer.from_file(str(args.checkpoint / "tokenizer.json"))
    prompts = held_out_prompts(tokenizer, args.prompts, args.seed)
    ids = [p.ids for p in prompts]
    skills = [p.skill for p in prompts]
    methods, layers = proposers(target, args.drafts, args.ablations or args.drafts)
    stops = frozenset(SPECIALS.index(token) for token in (IM_END, EOS))
    how = Decoding(args.k, args.limit, stops, layers, 0.0, args.seed)
    sampled = replace(how, temperature=1.0)
    started = time.monotonic()
    plain = [plain_greedy(target, prompt, how) for prompt in ids[: args.check]]
    print(f"plain greedy of {len(plain)} prompts: {time.monotonic() - started:.1f} s", flush=True)
    results: dict[str, dict[str, Any]] = {}
    for name, proposer in methods.items():
        started = time.monotonic()
        rounds, replies = run(target, proposer, ids, how, args.batch)
        results[name] = {
            "greedy": summarise(rounds, len(ids), args.k),
            "greedy by skill": by_skill(rounds, skills),
            "equal to plain greedy": compare(plain, replies, args.limit),
        }
        rounds, _ = run(target, proposer, ids, sampled, args.batch)
        results[name]["T=1"] = summarise(rounds, len(ids), args.k)
        results[name]["T=1 by skill"] = by_skill(rounds, skills)
        seconds = time.monotonic() - started
        print(f"{name}: {seconds:.1f} s, {results[name]['equal to plain greedy']}", flush=True)
    text = "\n\n".join(table(results, mode, args.k) for mode in ("greedy", "T=1"))
    figures = {
        "prompts": len(ids), "k": args.k, "tokens a reply at most": args.limit, "seed": args.seed,
        "methods": results,
    }  # fmt: skip
    return figures, text


def parser() -> argparse.ArgumentParser:
    """The command line."""
    p = argparse.ArgumentParser()
    p.add_argument("--drafts", type=Path, required=True, help="folder that train_draft wrote")
    p.add_argument("--ablations", type=Path, help="folder of the ablations; default: DRAFTS")
    p.add_argument("--checkpoint", type=Path, default=CHECKPOINT, help="the target")
    p.add_argument("--prompts", type=int, default=512)
    p.add_argument("--k", type=int, default=7)
    p.add_argument("--limit", type=int, default=128, help="tokens a reply at most")
    p.add_argument("--batch", type=int, default=128)
    p.add_argument("--check", type=int, default=32, help="prompts compared with plain decoding")
    p.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    p.add_argument("--threads", type=int, default=0, help="CPU threads; 0 leaves the default")
    p.add_argument("--seed", type=int, default=11)
    p.add_argument("--json", type=Path, help="also write the figures here")
    return p


def main() -> None:
    """Measure, print, and exit with 1 if speculation changed a greedy reply."""
    args = parser().parse_args()
    if args.threads:
        torch.set_num_threads(args.threads)
    figures, text = measure(args)
    print(text)
    if args.json:
        args.json.write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")
    if any(m["equal to plain greedy"]["wrong"] for m in figures["methods"].values()):
        sys.exit("speculative greedy output differs from plain greedy output")


if __name__ == "__main__":
    main()
