#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Draws calls, computes them right in one of many honest arithmetics, and counts how many `attest check`
clears; puts a small wrong into some, and counts how many of those it convicts.

    python3 right.py --attest build/release/attest --seed 7 --rights 400 --wrongs 200

An arithmetic is how programs that are right differ: the order of sums, blocks of keys with a running
maximum, exp or exp2, the type that factors, scores, weights and results are rounded to, where the scale
is put, what stands for minus infinity. A wrong is a slip too small to see: one key of all that is lost,
one wrong row or head, a sum kept in half precision. A hard one is a wrong in 16 bits where scores are so
large or so much alike that rounding them may change nearly anything: it must not be cleared, and may be
answered 'cannot tell', as may right ones of that sort. Exit 0 if the shares given by --least are reached.
"""
import argparse
import os
import sys
import tempfile

import numpy as np

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from arithmetic import arithmetics, compute, narrow_inputs, tensors_of  # noqa: E402
from calls import INPUTS, KINDS, draw_setting  # noqa: E402
from fresh import judged, names_in  # noqa: E402
from tensors import write  # noqa: E402
from wrongs import WRONGS, last_block, lost_key, nth  # noqa: E402


def draw_right(rng, size=None, only=None):
    ways = [a for a in arithmetics() if only is None or only in a.name]
    while True:
        a = ways[nth(rng, len(ways))]
        kind, sort = KINDS[nth(rng, len(KINDS))], INPUTS[nth(rng, len(INPUTS))]
        narrow = "float16" in (a.inputs, a.out, a.holds)
        if narrow and sort in ("large", "tiny", "outliers", "very_peaked"):
            continue  # no longer numbers of that type
        s, flags = draw_setting(rng, kind, sort, size)
        narrow_inputs(a, s)
        if a.fill != -np.inf and (sort == "very_peaked" or kind == "sink"):
            continue
        keep = compute(a, s)
        tables = [t for t in ("weights", "lse", "masked") if rng.random() < 0.25]
        if kind == "sink":
            tables = [t for t in tables if t != "lse"]
        if not all(np.isfinite(keep[t]).all() for t in ("output",)) and kind != "empty_nan":
            continue
        return f"{kind}, {sort}, {a.name}, {'+'.join(tables) or 'output alone'}", a, s, flags, keep, tables


def is_hard(a, kind, sort):
    """Whether 16 bits may leave little of what tells scores apart."""
    return bool(a.inputs or a.factors) and (kind == "softcap" or sort not in ("normal", "flat", "large", "tiny", "offset"))


def draw_wrong(rng, size=None, hard=False):
    while True:
        name, needs, make = WRONGS[nth(rng, len(WRONGS))]
        what, a, s, flags, keep, tables = draw_right(rng, size)
        kind, sort = what.split(", ")[:2]
        if is_hard(a, kind, sort) != hard:
            continue
        if needs == "plain" and kind != "plain" or needs == "causal" and kind != "causal":
            continue
        if needs == "f32" and (a.inputs or a.factors or kind not in ("plain", "causal", "bias", "alibi")
                               or "peaked" in sort):
            continue
        if needs == "lse" and (kind in ("sink",) or a.inputs):
            continue
        if needs == "lse":
            tables = ["lse"]
        if make in (lost_key, last_block):
            tables = []
        wrong = make(rng, a, s, keep)
        if wrong is None:
            continue
        compared = ["output"] + tables
        clear = 3e-3 if not (a.inputs or a.factors) else 0.1
        if needs == "f32":
            clear = 2e-5
        far = max(distance(wrong[t], keep[t]) for t in compared)
        if not far > clear:
            continue
        return f"{name} in {what}", a, s, flags, wrong, tables


def distance(x, y):
    """The largest error in units of the table's own spread."""
    if x.shape != y.shape:
        return np.inf
    x, y = x.astype(float), y.astype(float)
    if (np.isfinite(x) != np.isfinite(y)).any():
        return np.inf
    ok = np.isfinite(y)
    if not ok.any():
        return 0
    return np.abs(x[ok] - y[ok]).max() / (np.abs(y[ok]).max() + 1e-300)


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--attest", default="attest")
    options.add_argument("--seed", type=int, default=20261130)
    options.add_argument("--rights", type=int, default=300)
    options.add_argument("--wrongs", type=int, default=150)
    options.add_argument("--hard", type=int, default=100, help="wrongs in 16 bits where scores are large or alike")
    options.add_argument("--least", default="1.0,1.0,1.0", help="shares of rights, wrongs, hard ones")
    options.add_argument("--size", help="B,H,T,S,D for every draw")
    options.add_argument("--only", help="arithmetics whose name holds this")
    options.add_argument("--keep", help="a folder for the dumps that were misjudged")
    options.add_argument("--verbose", action="store_true")
    o = options.parse_args()
    size = [int(n) for n in o.size.split(",")] if o.size else None
    reached = True
    with tempfile.TemporaryDirectory() as folder:
        shares = [float(share) for share in o.least.split(",")]
        for which, (what, rounds, share) in enumerate(zip(("rights", "wrongs", "hard"),
                                                          (o.rights, o.wrongs, o.hard), shares)):
            good, undecided = 0, 0
            for n in range(rounds):
                rng = np.random.default_rng([o.seed, which, n])
                with np.errstate(all="ignore"):
                    if what == "rights":
                        text, a, s, flags, keep, tables = draw_right(rng, size, o.only)
                    else:
                        text, a, s, flags, keep, tables = draw_wrong(rng, size, what == "hard")
                    tensors = tensors_of(a, s, keep, tables)
                path = os.path.join(folder, "dump.safetensors")
                write(path, tensors)
                code, report = judged(o.attest, path, flags + a.flags, [])
                # Where nothing is claimed, readings of the tensors may differ: that is no conviction.
                may_wait = what == "hard" or (what == "rights" and is_hard(a, *text.split(", ")[:2]))
                ok = code == (0 if what == "rights" else 1) or ((may_wait or not flags) and code == 3)
                good += ok
                undecided += code == 3
                if not ok and (o.verbose or o.keep):
                    found = [names_in(e) for e in report.get("explanations", [])][:2]
                    print(f"  {what} {n}: {text} exit {code} {report.get('verdict', '')} {found} "
                          f"{report.get('error', '')}", flush=True)
                    if o.keep:
                        os.makedirs(o.keep, exist_ok=True)
                        kept = os.path.join(o.keep, f"{what}-{n}.safetensors")
                        write(kept, tensors)
                        print("    attest check", kept, *flags, *a.flags)
            if rounds:
                print(f"{what}: {good} of {rounds} ({100 * good / rounds:.1f} %), "
                      f"{undecided} answered 'cannot tell'", flush=True)
                reached &= good >= share * rounds
    return 0 if reached else 1


if __name__ == "__main__":
    sys.exit(main())
