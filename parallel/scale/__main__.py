"""Predict the speed and the memory of training on many GPUs, or compare with published runs.

    python -m parallel.scale predict llama3-8b --gpus 128
    python -m parallel.scale published

The page parallel_scale says what it leaves out.
"""

import argparse
import sys

from parallel.scale.choose import GPUS, MODELS, machine, ranked
from parallel.scale.costs import Work
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
    size = model.parameters(work.context) / 1e9
    print(f"{args.model}: {size:,.2f} billion weights, {work.sequences} × {work.context} tokens")
    print("tokens/s/GPU  layout                       micro-batch    GB  computing bubble messages")
    for speed, layout, own, spent, sizes in found[: args.top]:
        told = f"{own.micro}{', again' if own.recompute else ''}"
        print(f"{speed / layout.gpus:12,.0f}  {layout!s:30}{told:10}", end="")
        print(f"{sum(sizes.values()) / 1e9:7.0f}", end="")
        shares = [spent[part] / sum(spent.values()) for part in ("computing", "bubble", "messages")]
        print("{:11.0%}{:7.0%}{:9.0%}".format(*shares))


def published(args):
    for what, told, ours in compared():
        ending = f"predicted {ours:5,.0f}, {ours / told - 1:+.0%}" if ours else "fits the rate"
        print(f"{what:24} published {told:5,}, {ending}")


def positive(kind):
    def number(text):
        if not (value := kind(text)) > 0:
            raise argparse.ArgumentTypeError(f"is {text}, but must be more than 0")
        return value

    return number


def main():
    parser = argparse.ArgumentParser(prog="python -m parallel.scale", description=__doc__)
    commands = parser.add_subparsers(required=True)
    commands.add_parser("published", help="compare with published runs").set_defaults(do=published)
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
