"""Train nano on one GPU in a few minutes.

    python -m edgekit.recipes.nano.train --data DIR --out DIR --minutes 7

The schedule follows the clock, not a step count: it ends on time on any machine. A checkpoint is
written every minute. ``--resume DIR`` starts from the weights of a checkpoint folder.
"""

import argparse
import json
import time
from collections import defaultdict
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from typing import cast

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader

from edgekit.recipes.nano.checkpoint import load_checkpoint, save_checkpoint
from edgekit.recipes.nano.data import Rows
from edgekit.recipes.nano.model import NanoConfig, NemotronH
from edgekit.recipes.nano.prepare import CHECKPOINT

DECAY_FROM = 0.35  # part of the run after which the learning rate falls and chat takes over
BALANCE_RATE = 0.002

LossStep = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]


def orthogonal(matrices: Tensor, steps: int = 5) -> Tensor:
    """Replace the singular values of [N, rows, cols] by values near one (Newton-Schulz)."""
    x = matrices.bfloat16() if matrices.is_cuda else matrices  # slow on a CPU
    tall = x.shape[-2] > x.shape[-1]
    x = x.mT if tall else x
    x = x / (x.norm(dim=(-2, -1), keepdim=True) + 1e-7)
    a, b, c = 3.4445, -4.7750, 2.0315
    for _ in range(steps):
        gram = x @ x.mT
        x = a * x + (b * gram + c * gram @ gram) @ x
    return cast(Tensor, x.mT if tall else x)


class Muon:
    """Momentum with orthogonalised updates, for the weight matrices of the blocks.

    Matrices of one shape are handled as one batch; stacked experts count as separate matrices.
    """

    def __init__(self, params: list[nn.Parameter], momentum: float = 0.95) -> None:
        self.momentum = momentum
        self.groups: dict[tuple[int, ...], list[nn.Parameter]] = defaultdict(list)
        for p in params:
            self.groups[tuple(p.shape)].append(p)
        self.buffers = {
            shape: torch.zeros(len(ps), *shape, device=ps[0].device)
            for shape, ps in self.groups.items()
        }

    @torch.no_grad()
    def step(self, lr: float, decay: float) -> None:
        """Apply one update and clear the gradients."""
        for shape, params in self.groups.items():
            grads = torch.stack([p.grad for p in params if p.grad is not None])
            buffer = self.buffers[shape]
            buffer.lerp_(grads, 1 - self.momentum)
            update = grads.lerp(buffer, self.momentum)  # Nesterov
            flat = orthogonal(update.reshape(-1, *shape[-2:])).reshape(update.shape)
            scale = max(1.0, shape[-2] / shape[-1]) ** 0.5
            for p, u in zip(params, flat.unbind(), strict=True):
                p.mul_(1 - lr * decay).add_(u.to(p.dtype), alpha=-lr * scale)
                p.grad = None


def split_parameters(model: NemotronH) -> tuple[list[nn.Parameter], list[nn.Parameter]]:
    """(matrices of the blocks, everything else)."""
    matrices: list[nn.Parameter] = []
    others: list[nn.Parameter] = []
    for name, p in model.named_parameters():
        block = ".mixer." in name and p.dim() >= 2
        special = "conv1d" in name or ".gate." in name
        (matrices if block and not special else others).append(p)
    return matrices, others


def schedule(done: float) -> float:
    """Learning-rate factor for the part of the run that is done."""
    return 1.0 if done < DECAY_FROM else max(0.01, (1.0 - done) / (1.0 - DECAY_FROM))


def build_step(model: NemotronH, device: str) -> LossStep:
    """The loss function under bf16 autocast."""

    def loss(tokens: Tensor, weights: Tensor) -> tuple[Tensor, Tensor]:
        with torch.autocast(device, dtype=torch.bfloat16, enabled=device == "cuda"):
            return model.loss(tokens, weights)

    return loss


def self_check(
    model: NemotronH, rows: int, length: int, device: str, compiled: bool
) -> tuple[NemotronH, LossStep]:
    """Two forward and backward passes; without a working compiler training falls back to eager."""
    tokens = torch.randint(0, model.config.vocab_size, (rows, length + 1), device=device)
    weights = torch.ones(rows, length, device=device)
    plain = deepcopy(model)
    for attempt in (True, False) if compiled else (False,):
        started = time.monotonic()
        if attempt:
            model.compile_parts()
        else:
            model = plain
        step = build_step(model, device)
        try:
            for _ in range(2):
                value, loads = step(tokens, weights)
                value.backward()  # type: ignore[no-untyped-call]
            grads = [p.grad for p in model.parameters()]
            assert all(g is not None and bool(g.isfinite().all()) for g in grads)
            assert (
                loads.sum().item()
                == loads.shape[0] * rows * length * model.config.num_experts_per_tok
            )
        except Exception as error:
            if not attempt:
                raise
            print(f"compile failed, training eagerly: {error!r}"[:2000], flush=True)
            continue
        finally:
            model.zero_grad(set_to_none=True)
        seconds = time.monotonic() - started
        print(
            f"self check: loss {value.item():.3f}, compiled {attempt}, {seconds:.1f} s", flush=True
        )
        return model, step
    raise AssertionError


def train(args: argparse.Namespace) -> None:
    """Run the schedule."""
    opened = time.monotonic()
    deadline = opened + 60 * args.minutes
    torch.manual_seed(args.seed)
    torch.set_float32_matmul_precision("high")
    device = args.device
    model = load_checkpoint(args.resume) if args.resume else NemotronH(NanoConfig())
    model = model.to(device).train()
    data = Rows(args.tokenizer, args.data / "docs.bin", args.length, args.seed)
    loader = DataLoader(
        data, args.rows, num_workers=args.workers, pin_memory=device == "cuda",
        prefetch_factor=6 if args.workers else None,
    )  # fmt: skip
    data.share.value = args.docs_share[0]
    batches = iter(loader)  # the workers fill their queues while the compiler runs
    model, step_loss = self_check(model, args.rows, args.length, device, args.compile)
    matrices, others = split_parameters(model)
    muon = Muon(matrices)
    adam = torch.optim.AdamW(others, lr=args.adam_lr, betas=(0.9, 0.95), weight_decay=0.0)

    started = saved = time.monotonic()
    step, tokens_seen = 0, 0
    recent: list[Tensor] = []
    while time.monotonic() < deadline and step != args.max_steps:
        done = (time.monotonic() - started) / (deadline - started)
        data.share.value = args.docs_share[int(done >= DECAY_FROM)]
        factor = min(1.0, (step + 1) / 100) * schedule(done)
        tokens, weights = (t.to(device, non_blocking=True) for t in next(batches))
        loss, loads = step_loss(tokens.long(), weights)
        loss.backward()  # type: ignore[no-untyped-call]
        nn.utils.clip_grad_norm_(others, 1.0)
        for group in adam.param_groups:
            group["lr"] = args.adam_lr * factor
        adam.step()
        adam.zero_grad(set_to_none=True)
        muon.step(args.muon_lr * factor, args.decay)
        with torch.no_grad():
            model.balance(loads, BALANCE_RATE * factor)
        recent.append(loss.detach())
        step += 1
        tokens_seen += weights.numel()
        if step % args.log_every == 0:
            mean = torch.stack(recent).mean().item()
            recent.clear()
            spent = time.monotonic() - started
            busiest = (loads.max(1).values / loads.mean(1)).max().item()
            print(
                f"step {step} loss {mean:.4f} tokens {tokens_seen / 1e6:.1f}M "
                f"{tokens_seen / spent / 1e3:.0f}k/s done {done:.2f} lr {factor:.3f} "
                f"load {busiest:.2f}",
                flush=True,
            )
        if time.monotonic() - saved > 60:
            save_checkpoint(model, args.out)
            saved = time.monotonic()
    save_checkpoint(model, args.out)
    summary = {
        "steps": step, "tokens": tokens_seen, "seconds": round(time.monotonic() - started, 1),
        "seconds_before_first_step": round(started - opened, 1),
        "rows": args.rows, "length": args.length, "seed": args.seed,
        "docs_share": args.docs_share,
        "muon_lr": args.muon_lr, "adam_lr": args.adam_lr, "decay": args.decay,
    }  # fmt: skip
    (args.out / "training.json").write_text(json.dumps(summary, indent=2) + "\n", encoding="utf-8")
    print(summary, flush=True)


def main() -> None:
    """Parse the command line and train."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", type=Path, required=True, help="folder with docs.bin")
    parser.add_argument("--tokenizer", type=Path, default=CHECKPOINT / "tokenizer.json")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--minutes", type=float, default=7.0, help="wall time, start included")
    parser.add_argument("--resume", type=Path)
    parser.add_argument("--rows", type=int, default=32)
    parser.add_argument("--length", type=int, default=2048)
    parser.add_argument("--workers", type=int, default=14)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--compile", action=argparse.BooleanOptionalAction, default=True)
    parser.add_argument("--muon-lr", type=float, default=0.02)
    parser.add_argument("--adam-lr", type=float, default=4e-3)
    parser.add_argument("--decay", type=float, default=0.05)
    parser.add_argument(
        "--docs-share", type=float, nargs=2, default=(0.20, 0.03),
        help="share of documentation rows, before and after the learning rate begins to fall",
    )  # fmt: skip
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--max-steps", type=int, default=-1)
    parser.add_argument("--log-every", type=int, default=100)
    train(parser.parse_args())


if __name__ == "__main__":
    main()
