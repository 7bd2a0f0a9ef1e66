"""Predict the speed and the memory of training on many GPUs, or compare with
published runs, or with this machine.

    python -m parallel.scale predict llama3-8b --gpus 128
    python -m parallel.scale published

The page parallel_scale says what it leaves out.
"""

import argparse
import os
import sys

from parallel.scale.choose import GPUS, MODELS, machine, ranked
from parallel.scale.costs import Work
from parallel.scale.large import show
from parallel.scale.published import compared


def predict(args):
    model, on = MODELS[args.model], machine(args.gpu, args.share, args.link)
    work = Work(args.sequences, args.context)
    found, smallest = ranked(model, args.gpus, work, on)
    if not found:
        needs = f"{smallest / 1e9:,.0f} GB each" if smallest else "--sequences that they can share"
        sys.exit(
            f"{args.model} on {args.gpus} GPUs of {on.memory / 1e9:.0f} GB needs {needs}: "
            "pass more --gpus, a larger --gpu, or other --sequences"
        )
    size, tokens = model.parameters(work.context) / 1e9, f"{work.sequences} × {work.context} tokens"
    print(f"{args.model}: {size:,.2f} billion weights, {tokens} per step")
    print("time: █ computing, ░ bubble, ▒ messages; hours of a GPU per billion tokens")
    shown = found[: args.top]
    wide = max(len(str(layout)) for _, layout, *_ in shown)
    print(f"tokens/s/GPU   hours  {'layout':{wide}}   GB  micro       █    ░    ▒")
    for speed, layout, own, spent, sizes in shown:
        rate, told = speed / layout.gpus, f"{own.micro}{', again' if own.recompute else ''}"
        shares = [spent[part] / sum(spent.values()) for part in ("computing", "bubble", "messages")]
        print(f"{rate:12,.0f}{1e9 / rate / 3600:8,.1f}  {layout!s:{wide}}", end="")
        print(f"{sum(sizes.values()) / 1e9:5.0f}  {told:8}", end="")
        print("{:5.0%}{:5.0%}{:5.0%}  ".format(*shares) + bar(shares, 16 * speed / found[0][0]))


def bar(shares, length):
    """Characters for these shares, as many as `length` in all."""
    ends = [round(length * sum(shares[:n])) for n in range(4)]
    return "".join(sign * (ends[n + 1] - ends[n]) for n, sign in enumerate("█░▒"))


def published(args):
    for what, told, ours in compared():
        ending = f"predicted {ours:7,.0f}, {ours / told - 1:+.0%}" if ours else "fits the rate"
        print(f"{what:30} published {told:7,}, {ending}")


def measured(args):
    if "LOCAL_RANK" not in os.environ:
        command = "torchrun --standalone --nproc_per_node=2 -m parallel.scale"
        sys.exit(f"torchrun starts this: {command} {'check' if args.check else 'measure'}")
    from parallel.scale import measure  # the other commands need no torch

    measure.main(args.check)


def positive(kind):
    def number(text):
        if not (value := kind(text)) > 0:
            raise argparse.ArgumentTypeError(f"is {text}, but must be more than 0")
        return value

    return number


def main():
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser("python -m parallel.scale", None, __doc__, formatter_class=raw)
    commands = parser.add_subparsers(required=True)
    commands.add_parser("published", help="compare with published runs").set_defaults(do=published)
    here = ("measure", "what collectives take"), ("check", "compare predicted and measured steps")
    for name, what in here:
        own = commands.add_parser(name, help=f"{what} on this machine, started by torchrun")
        own.set_defaults(do=measured, check=name == "check")
    own = commands.add_parser("large", help="what very many GPUs lose by waiting and by failures")
    own.add_argument("--spread", type=positive(float), default=1, help="of a step, in percent")
    own.add_argument("--years", type=positive(float), default=5.8, help="of a GPU, to its failure")
    own.add_argument("--save", type=positive(float), default=30, help="seconds of a save")
    own.add_argument("--restart", type=positive(float), default=600, help="seconds of a restart")
    own.add_argument("--step", type=positive(float), default=10, help="seconds of a step of DiLoCo")
    own.set_defaults(do=show)
    own = commands.add_parser("predict", help="the best layouts of a model, on so many GPUs")
    own.add_argument("model", choices=MODELS)
    own.add_argument("--gpus", type=positive(int), required=True)
    own.add_argument("--gpu", choices=GPUS, default="h100")
    own.add_argument(
        "--link", type=positive(float), default=400, help="of a GPU to other nodes, in Gbit/s"
    )
    own.add_argument(
        "--share", type=positive(float), default=0.4, help="of its peak that a GPU computes at"
    )
    own.add_argument("--sequences", type=positive(int), default=512, help="per step, on all GPUs")
    own.add_argument("--context", type=positive(int), default=8192, help="tokens of a sequence")
    own.add_argument("--top", type=positive(int), default=8, help="how many layouts are printed")
    own.set_defaults(do=predict)
    args = parser.parse_args()
    args.do(args)


if __name__ == "__main__":
    main()
