#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Draws calls, computes them with mistakes by the second program, and counts how many mistakes
`attest check` names.

    python3 fresh.py --attest build/release/attest --seed 7 --singles 400 --pairs 200 --rights 100

The dumps hold tensors under neutral names and nothing that says the answer. A dump whose numbers are
those of the right computation, or of a simpler mistake, to float32 is drawn again. Exit 0 if the shares
given by --least are reached.
"""
import argparse
import json
import os
import subprocess
import sys
import tempfile

import numpy as np

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from attention import Setting, alibi_slopes, run  # noqa: E402
from mistakes import ALL  # noqa: E402
from tensors import as_bf16, write  # noqa: E402

KINDS = ("plain", "causal", "top_left", "bottom_right", "past", "window", "lengths", "mask", "mask_causal",
         "grouped", "grouped_causal", "bias", "bias_causal", "softcap", "alibi", "rope", "rope_past", "sink",
         "documents")


def draw_setting(rng, kind):
    pick = lambda low, high: int(rng.integers(low, high + 1))
    batch, heads = pick(2, 3), int(rng.choice([3, 5, 6, 7, 9]))
    groups, width, keys = heads, int(rng.choice([8, 10, 12, 14, 20])), pick(7, 21)
    if rng.random() < 0.125:  # as wide and long as a small model's
        width, keys = int(rng.choice([32, 40, 64])), pick(33, 64)
    queries, options = keys, {}
    value_width = width if rng.random() < 0.6 else width + pick(1, 5)
    if kind.startswith("grouped"):
        heads, groups = [(6, 2), (6, 3), (8, 2), (9, 3), (12, 4)][pick(0, 4)]
        queries = keys if kind.endswith("causal") else pick(4, keys)
    if kind in ("bottom_right", "past", "rope_past"):
        queries = pick(2, keys - 3)
        options["offset"] = keys - queries
        if kind != "bottom_right":
            options["past"] = keys - queries
    if kind == "top_left":
        queries = pick(3, keys - 2)
    if kind in ("plain", "bias", "lengths") and rng.random() < 0.5:
        queries = pick(3, 19)
    if kind == "documents":
        batch = 1
        cuts = sorted(rng.choice(np.arange(2, keys - 1), 2, replace=False).tolist())
        options["documents"] = [0] + [int(c) for c in cuts] + [keys]
    shape = lambda h, n, d: rng.standard_normal((batch, h, n, d)).astype(np.float32)
    query, key, value = shape(heads, queries, width), shape(groups, keys, width), shape(groups, keys, value_width)
    if kind in ("causal", "top_left", "bottom_right", "past", "window", "mask_causal", "grouped_causal", "bias_causal", "alibi",
                "rope", "rope_past", "sink"):
        options["causal"] = True
    if kind == "documents":
        options["causal"] = False  # positions would count within a document
    if kind == "window":
        options["window"] = pick(2, 4)
    if kind == "lengths":
        options["lengths"] = [int(n) for n in rng.integers(3, keys, batch)]
    if kind in ("mask", "mask_causal", "softcap"):
        mask = rng.random((batch, 1, queries, keys)) < 0.65
        mask[..., 0] = True
        options["mask"] = mask
    if kind.startswith("bias"):
        options["bias"] = rng.standard_normal((batch, heads, queries, keys)).astype(np.float32)
    if kind == "softcap":
        options["softcap"] = float(np.float32(rng.choice([0.45, 1.5, 3.0])))
    if kind == "alibi":
        options["slopes"] = alibi_slopes(heads)
    if kind.startswith("rope"):
        options["rope"] = 10000.0
    if kind == "sink":
        options["sink"] = rng.standard_normal(heads).astype(np.float32)
    return Setting(query, key, value, **options)


def flags_of(s):
    out = []
    if s.causal:
        out += ["--causal", str(s.offset)] if s.queries != s.keys else ["--causal"]
    if s.window is not None:
        out += ["--window", f"{s.window},"]
    if s.softcap:
        out += ["--softcap", repr(s.softcap)]
    if s.slopes is not None:
        out += ["--alibi"]
    if s.rope:
        out += ["--rope", "half", "--rope-base", repr(s.rope)]
    if s.lengths is not None:
        out += ["--key-lengths", ",".join(map(str, s.lengths))]
    if s.documents is not None:
        out += ["--query-starts", ",".join(map(str, s.documents))]
    if s.past:
        out += ["--past", str(s.past)]
    if not out:
        out = ["--causal", "none"]  # a claim: everything is seen
    return out


def stored(x, dtype):
    return as_bf16(x) if dtype == "bfloat16" else x.astype(dtype)


def tensors_of(s, output, dtype):
    out = {"query": s.query, "key": s.key, "value": s.value, "output": stored(output, dtype)}
    if s.mask is not None:
        out["mask"] = s.mask
    if s.bias is not None:
        out["bias"] = s.bias
    if s.sink is not None:
        out["sink"] = s.sink
    return out


def apart(a, b):
    """Relative distance, or infinite where one alone is NaN."""
    if (np.isnan(a) != np.isnan(b)).any():
        return np.inf
    ok = ~np.isnan(a)
    size = np.sqrt((b[ok] ** 2).sum()) or 1.0
    return float(np.sqrt(((a[ok] - b[ok]) ** 2).sum()) / size)


def valid(s, name_axis_when_make):
    try:
        return bool(name_axis_when_make[2](s))
    except (AttributeError, TypeError):
        return False


def is_like(s, wrong, one):
    """Whether that mistake alone gives the same numbers."""
    try:
        return apart(wrong, run(s, one[3](s))) < 1e-6
    except ValueError:
        return False


def draw(rng, count):
    """A setting with `count` mistakes, all of which matter; each is as likely to be the first."""
    wanted = ALL[int(rng.integers(len(ALL)))]
    while True:
        kind = KINDS[int(rng.integers(len(KINDS)))]
        s = draw_setting(rng, kind)
        possible = [m for m in ALL if valid(s, m)]
        right = run(s)
        if count == 0:
            return kind, s, [], right
        if not any(m is wanted for m in possible):
            continue
        rest = [m for m in possible if m[1] != wanted[1]]
        if len(rest) < count - 1:
            continue
        chosen = [wanted] + [rest[i] for i in rng.choice(len(rest), count - 1, replace=False)]
        steps = [m[3](s) for m in chosen]
        if len({m[1] for m in chosen}) < count or len(set().union(*steps)) < sum(map(len, steps)):
            continue
        try:
            together = {k: v for one in steps for k, v in one.items()}
            wrong = run(s, together)
        except ValueError:
            continue
        if not np.isfinite(wrong).all() or np.abs(wrong).max() > 1e4:
            wanted = ALL[int(rng.integers(len(ALL)))]
            continue
        others = [right] + ([run(s, one) for one in steps] if count > 1 else [])
        simpler = possible if count > 1 else []
        if min(apart(wrong, o) for o in others) < 2e-3 or any(is_like(s, wrong, one) for one in simpler):
            wanted = ALL[int(rng.integers(len(ALL)))]
            continue
        return kind, s, [m[0] for m in chosen], wrong


def names_in(explanation):
    return [m["name"] for m in explanation["mistakes"]]


def judged(program, path, flags, extra):
    ended = subprocess.run([program, "check", path, "--json", *flags, *extra],
                           capture_output=True, text=True)
    try:
        return ended.returncode, json.loads(ended.stdout)
    except json.JSONDecodeError:
        return ended.returncode, {"error": ended.stderr.strip()}


def named(report, expected):
    """Whether the first explanation, or one that it says gives the same numbers, is what was done."""
    if not report.get("explanations"):
        return False
    best = report["explanations"][0]
    if sorted(names_in(best)) == sorted(expected):
        return True
    parts = lambda label: [part.split(" (")[0].strip() for part in label.split(" + ")]
    return any(sorted(parts(label)) == sorted(expected) for label in best.get("same", []))


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--attest", default="attest")
    options.add_argument("--seed", type=int, default=20261130)
    options.add_argument("--singles", type=int, default=300)
    options.add_argument("--pairs", type=int, default=100)
    options.add_argument("--rights", type=int, default=100)
    options.add_argument("--dtype", default="float32", choices=["float32", "float16", "bfloat16"])
    options.add_argument("--least", default="1.0,0.99,0.95", help="shares of rights, singles, pairs")
    options.add_argument("--keep", help="a folder for the dumps that were missed")
    options.add_argument("--verbose", action="store_true")
    o = options.parse_args()
    least = [float(x) for x in o.least.split(",")]
    reached = True
    with tempfile.TemporaryDirectory() as folder:
        for what, count, rounds, share in (("rights", 0, o.rights, least[0]), ("singles", 1, o.singles, least[1]),
                                           ("pairs", 2, o.pairs, least[2])):
            good, undecided = 0, 0
            for n in range(rounds):
                rng = np.random.default_rng([o.seed, count, n])
                kind, s, expected, output = draw(rng, count)
                path = os.path.join(folder, "dump.safetensors")
                write(path, tensors_of(s, output, o.dtype))
                code, report = judged(o.attest, path, flags_of(s), [])
                ok = code == 0 if count == 0 else code == 1 and named(report, expected)
                good += ok
                undecided += code == 3
                if not ok and (o.verbose or o.keep):
                    found = [names_in(e) for e in report.get("explanations", [])][:2]
                    print(f"  {what} {n}: {kind} {expected} exit {code} found {found} "
                          f"{report.get('error', '')}")
                    if o.keep:
                        os.makedirs(o.keep, exist_ok=True)
                        kept = os.path.join(o.keep, f"{what}-{n}.safetensors")
                        write(kept, tensors_of(s, output, o.dtype))
                        print("    attest check", kept, *flags_of(s))
            if rounds:
                print(f"{what}: {good} of {rounds} ({100 * good / rounds:.1f} %), "
                      f"{undecided} answered 'cannot tell'", flush=True)
                reached &= good >= share * rounds
    return 0 if reached else 1


if __name__ == "__main__":
    sys.exit(main())
