"""Train the MTP head and the DSpark draft against a frozen target.

    python -m edgekit.recipes.nano.speculative.train_draft --data DIR --out DIR --minutes 4

All drafts see the same anchors of the same batches, so they are compared after equal steps. The
schedule follows the clock. Every minute OUT receives dspark/ (config.json, model.safetensors) and
mtp.safetensors; the ablations go to ABLATIONS: dspark-no-markov/ (no Markov head, same loss) and
dflash/ (bidirectional block, full attention, no sinks, cross-entropy only). ``--resume OUT``
continues from the weights found there. ``--merge`` puts the head into the checkpoint at the end.
"""

import argparse
import json
import math
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import cast

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader

from edgekit.recipes.nano.checkpoint import load_checkpoint
from edgekit.recipes.nano.data import Rows
from edgekit.recipes.nano.model import NemotronH
from edgekit.recipes.nano.prepare import CHECKPOINT
from edgekit.recipes.nano.speculative.config import DraftConfig
from edgekit.recipes.nano.speculative.drafting import Draft
from edgekit.recipes.nano.speculative.dspark import DSpark
from edgekit.recipes.nano.speculative.files import (
    MTP_FILE,
    add_mtp,
    load_draft,
    load_mtp,
    mtp_tensors,
    save_draft,
    save_mtp,
    size,
)
from edgekit.recipes.nano.speculative.mtp import Mtp
from edgekit.recipes.nano.speculative.objective import (
    Anchors,
    choose_anchors,
    draft_loss,
    expected_length,
    target_logits,
)
from edgekit.recipes.nano.speculative.target import Features, read_target
from edgekit.recipes.nano.train import Muon

DRAFTS = ("dspark", "mtp", "dspark-no-markov", "dflash")
DOCUMENTATION = 0.05  # share of documentation rows
WARM_UP = 0.04
BALANCE_RATE = 0.002


def variant(name: str, config: DraftConfig) -> DraftConfig:
    """The configuration of a named draft, from that of the full DSpark draft."""
    if name == "dspark-no-markov":
        return replace(config, markov_rank=0)
    if name == "dflash":
        return replace(
            config, markov_rank=0, causal=False, attention_sink_bias=False, sliding_window=None
        )
    return config


def place(name: str, out: Path, ablations: Path) -> Path:
    """Where the draft is kept."""
    if name == "mtp":
        return out / MTP_FILE
    return (out if name == "dspark" else ablations) / name


def build(name: str, config: DraftConfig, target: NemotronH, resume: Path | None) -> DSpark | Mtp:
    """A fresh draft, or the one found at ``resume``."""
    if resume and resume.exists():
        return load_mtp(resume, target) if name == "mtp" else load_draft(resume, target)
    return Mtp(target) if name == "mtp" else DSpark(variant(name, config), target)


def save(draft: DSpark | Mtp, path: Path) -> None:
    """Write the draft in its published form."""
    if isinstance(draft, Mtp):
        save_mtp(draft, path)
    else:
        save_draft(draft, path)


class Updates:
    """Muon for the matrices inside a draft, AdamW for tables, routers, norms and sinks.

    Published drafts train with AdamW alone for many epochs; in a run of minutes the orthogonalised
    updates reach a higher acceptance after equal steps. ``muon_lr=0`` leaves everything to AdamW.
    """

    def __init__(self, draft: nn.Module, muon_lr: float, adam_lr: float) -> None:
        named = list(draft.named_parameters())
        inner = {
            name: p.dim() >= 2 and not name.startswith("markov") and ".gate." not in name
            for name, p in named
        }
        self.muon_lr, self.adam_lr = muon_lr, adam_lr
        self.matrices = [p for name, p in named if muon_lr and inner[name]]
        self.others = [p for name, p in named if not (muon_lr and inner[name])]
        self.muon = Muon(self.matrices)
        self.adam = torch.optim.AdamW(self.others, lr=adam_lr, betas=(0.9, 0.95), weight_decay=0.0)

    def step(self, factor: float) -> None:
        """One update of both, and clear the gradients."""
        nn.utils.clip_grad_norm_(self.others, 1.0)
        for group in self.adam.param_groups:
            group["lr"] = self.adam_lr * factor
        self.adam.step()
        self.adam.zero_grad(set_to_none=True)
        self.muon.step(self.muon_lr * factor, 0.0)


def schedule(done: float) -> float:
    """Learning-rate factor: linear warm-up, then a cosine to 2 %."""
    if done < WARM_UP:
        return max(0.02, done / WARM_UP)
    return 0.02 + 0.98 * 0.5 * (1 + math.cos(math.pi * (done - WARM_UP) / (1 - WARM_UP)))


def batches(args: argparse.Namespace) -> Iterator[tuple[Tensor, Tensor]]:
    """Tokens [B, T] and the mask of supervised tokens [B, T], from the target's own recipe."""
    rows = Rows(args.tokenizer, args.data / "docs.bin", args.length - 1, args.seed)
    rows.share.value = DOCUMENTATION
    loader = DataLoader(
        rows, args.rows, num_workers=args.workers, pin_memory=args.device == "cuda",
        prefetch_factor=6 if args.workers else None,
    )  # fmt: skip
    for tokens, weights in loader:
        tokens = tokens.to(args.device, non_blocking=True).long()
        supervised = nn.functional.pad(weights > 0, (1, 0)).to(args.device, non_blocking=True)
        yield tokens, supervised


def draft_step(
    draft: Draft, features: Features, tokens: Tensor, wanted: Tensor, anchors: Anchors,
    slots: int, distill: float,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """(loss, acceptance by slot) with the true tokens as the draft's earlier tokens."""
    logits = draft.draft(
        features, tokens, anchors.positions, slots, lambda slot, _: anchors.labels[..., slot]
    )
    return draft_loss(logits, wanted, anchors, distill)


def train(args: argparse.Namespace) -> None:
    """Run the schedule."""
    opened = time.monotonic()
    deadline = opened + 60 * args.minutes
    torch.manual_seed(args.seed)
    torch.set_float32_matmul_precision("high")
    target = load_checkpoint(args.checkpoint).to(args.device).eval().requires_grad_(False)
    config = DraftConfig.for_target(
        target.config, args.taps, num_hidden_layers=args.layers, markov_rank=args.rank,
        intermediate_size=args.intermediate, sliding_window=args.window,
    )  # fmt: skip
    paths = {name: place(name, args.out, args.ablations or args.out) for name in args.drafts}
    drafts = {
        name: build(
            name, config, target, place(name, args.resume, args.resume) if args.resume else None
        ).to(args.device).train()
        for name in args.drafts
    }  # fmt: skip
    for name, draft in drafts.items():
        tensors = mtp_tensors(draft) if isinstance(draft, Mtp) else draft.state_dict()
        count = size(tensors)[0]
        print(f"{name}: {count / 1e6:.3f} M parameters, {2 * count / 1e6:.2f} MB in BF16")
    updates = {name: Updates(draft, args.muon_lr, args.adam_lr) for name, draft in drafts.items()}
    slots = {
        name: min(config.slots, args.mtp_steps) if name == "mtp" else config.slots
        for name in drafts
    }

    started = saved = time.monotonic()
    step = 0
    kept: dict[str, Tensor] = {}
    for tokens, supervised in batches(args):
        now = time.monotonic()
        if now >= deadline or step == args.max_steps:
            break
        factor = schedule(
            step / args.max_steps if args.max_steps > 0 else (now - started) / (deadline - started)
        )
        anchors = choose_anchors(tokens, supervised, args.anchors, config.slots)
        with torch.autocast(args.device, dtype=torch.bfloat16, enabled=args.device == "cuda"):
            features = read_target(target, tokens, config.target_layer_ids)
            wanted = target_logits(features, target.lm_head, anchors)
        for name, draft in drafts.items():
            with torch.autocast(args.device, dtype=torch.bfloat16, enabled=args.device == "cuda"):
                loss, acceptance = draft_step(
                    draft, features, tokens, wanted, anchors, slots[name],
                    0.0 if name == "dflash" else 0.9,
                )  # fmt: skip
            loss.backward()  # type: ignore[no-untyped-call]
            updates[name].step(factor)
            kept[name] = acceptance if step == 0 else torch.lerp(acceptance, kept[name], 0.95)
        if "mtp" in drafts:
            head = cast(Mtp, drafts["mtp"])
            head.centre()
            head.balance(BALANCE_RATE * factor)
        step += 1
        if step % args.log_every == 0 or step == 1:
            lengths = ", ".join(f"{n} {expected_length(a):.2f}" for n, a in kept.items())
            spent = time.monotonic() - started
            line = f"step {step} ({spent:.0f} s, lr {factor:.2f}) tokens a round: {lengths}"
            print(line, flush=True)
        if now - saved > 60:
            for name, draft in drafts.items():
                save(draft, paths[name])
            saved = now
    for name, draft in drafts.items():
        save(draft, paths[name])
    if args.merge and "mtp" in drafts:
        add_mtp(paths["mtp"], args.checkpoint)
    summary = {
        "steps": step, "seconds": round(time.monotonic() - started, 1),
        "rows": args.rows, "length": args.length, "anchors": args.anchors,
        "muon_lr": args.muon_lr, "adam_lr": args.adam_lr,
        "mtp_steps": args.mtp_steps, "seed": args.seed,
        "teacher-forced acceptance by slot": {
            name: [round(x, 4) for x in a.tolist()] for name, a in kept.items()
        },
    }  # fmt: skip
    if args.device == "cuda":
        summary["peak GPU bytes"] = torch.cuda.max_memory_allocated()
    (args.out / "training.json").write_text(json.dumps(summary, indent=2) + "\n", encoding="utf-8")
    print(json.dumps(summary), flush=True)


def parser() -> argparse.ArgumentParser:
    """The command line."""
    p = argparse.ArgumentParser()
    p.add_argument("--data", type=Path, required=True, help="folder with docs.bin")
    p.add_argument("--checkpoint", type=Path, default=CHECKPOINT, help="the frozen target")
    p.add_argument("--tokenizer", type=Path, help="default: the checkpoint's tokenizer.json")
    p.add_argument("--out", type=Path, required=True)
    p.add_argument("--ablations", type=Path, help="folder of the ablations; default: OUT")
    p.add_argument("--drafts", nargs="+", choices=DRAFTS, default=list(DRAFTS))
    p.add_argument("--resume", type=Path)
    p.add_argument("--merge", action="store_true", help="write the MTP head into the checkpoint")
    p.add_argument("--minutes", type=float, default=4.0, help="wall time, start included")
    p.add_argument("--rows", type=int, default=16)
    p.add_argument("--length", type=int, default=1024)
    p.add_argument("--anchors", type=int, default=128)
    p.add_argument("--muon-lr", type=float, default=0.02, help="0: AdamW for everything")
    p.add_argument("--adam-lr", type=float, default=8e-3)
    p.add_argument("--layers", type=int, default=2)
    p.add_argument("--intermediate", type=int, default=256)
    p.add_argument("--rank", type=int, default=32)
    p.add_argument("--taps", type=int, default=4)
    p.add_argument("--window", type=int, default=256)
    p.add_argument("--mtp-steps", type=int, default=5)
    p.add_argument("--workers", type=int, default=12)
    p.add_argument("--device", default="cuda")
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--max-steps", type=int, default=-1, help="end after so many steps instead")
    p.add_argument("--log-every", type=int, default=50)
    return p


def main() -> None:
    """Parse the command line and train."""
    args = parser().parse_args()
    args.tokenizer = args.tokenizer or args.checkpoint / "tokenizer.json"
    args.out.mkdir(parents=True, exist_ok=True)
    train(args)


if __name__ == "__main__":
    main()
