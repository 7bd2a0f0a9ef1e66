"""What very many GPUs lose: waiting for the slowest, failures, and messages over a slow link."""

import random
from math import exp, expm1, sqrt
from statistics import NormalDist

YEAR = 365.25 * 24 * 3600  # seconds


def slowest(ranks):
    """By how many standard deviations the slowest of so many is expected to be above the mean.

    Blom (1958), Statistical Estimates and Transformed Beta-Variables.
    """
    return NormalDist().inv_cdf((ranks - 0.375) / (ranks + 0.25)) if ranks > 1 else 0.0


def interval(save, between_failures):
    """The seconds between two saves that lose least time; a save takes `save` seconds.

    Young (1974), A First Order Approximation to the Optimum Checkpoint Interval.
    """
    return sqrt(2 * save * between_failures)


def lost(every, save, between_failures, restart):
    """The share of time that saves and failures cost: what was done since the last save is
    repeated, after a restart, which may fail, too.

    Daly (2006), A Higher Order Estimate of the Optimum Checkpoint Interval for Restart Dumps.
    """
    per_failure = exp(restart / between_failures) * expm1((every + save) / between_failures)
    return 1 - every / (between_failures * per_failure)


def simulated(every, save, between_failures, restart, failures=20_000, seed=0):
    """The same share, of a run with so many failures at random times."""
    draw = random.Random(seed)
    passed = useful = 0.0
    for _ in range(failures):
        until = draw.expovariate(1 / between_failures)
        passed += until
        useful += max(until - restart, 0) // (every + save) * every
    return 1 - useful / passed


def synchronizing(parameters, step, steps, link):
    """The share of time that DiLoCo waits, if it averages fp32 weights every so many steps.

    A ring sends each weight almost twice; `link` is in bytes per second, `step` in seconds.
    """
    waits = 2 * 4 * parameters / link
    return waits / (steps * step + waits)


def show(args):
    print("   GPUs  slowest  a failure every  save every  saves and failures")
    for gpus in (100, 1000, 10_000, 100_000):
        waits = slowest(gpus) * args.spread / 100
        apart = args.years * YEAR / gpus
        every = interval(args.save, apart)
        loses = lost(every, args.save, apart, args.restart)
        print(f"{gpus:7,}{waits / (1 + waits):9.1%}{apart / 3600:15.1f} h", end="")
        print(f"{every / 60:8.0f} min{loses:18.1%}")
    print(f"\nDiLoCo of 8 billion weights, steps of {args.step:g} s: share of time that it waits")
    print("      link  every 10  100  500 steps")
    for link in (0.1, 1, 10):
        waits = [synchronizing(8e9, args.step, steps, link * 1e9 / 8) for steps in (10, 100, 500)]
        print(f"{link:5} Gb/s{waits[0]:10.0%}{waits[1]:5.0%}{waits[2]:5.0%}")
