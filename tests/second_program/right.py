#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Draws calls, computes them right in one of many honest arithmetics, and counts how many `attest check`
clears; puts a small wrong into some, and counts how many of those it convicts.

    python3 right.py --attest build/release/attest --seed 7 --rights 400 --wrongs 200

An arithmetic is how programs that are right differ: the order of sums, blocks of keys with a running
maximum, exp or exp2, the type that factors, scores, weights and results are rounded to, where the scale
is put, what stands for minus infinity. A wrong is a slip too small to see: one key of all that is lost,
one wrong row or head, a sum kept in half precision. Exit 0 if the shares given by --least are reached.
"""
import argparse
import os
import sys
import tempfile

import numpy as np

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from attention import Setting, visible_of  # noqa: E402
from fresh import judged, names_in  # noqa: E402
from tensors import as_bf16, round_to, write  # noqa: E402

KINDS = ("plain", "causal", "bottom_right", "window", "lengths", "mask", "empty_zero", "empty_nan", "grouped",
         "bias", "softcap", "alibi", "rope", "sink", "documents", "none_claimed")
INPUTS = ("normal", "flat", "peaked", "very_peaked", "large", "tiny", "offset", "key_offset", "same_keys",
          "outliers")
F = np.float32


# ---- what is computed ------------------------------------------------------------------------------

def draw_setting(rng, kind, sort, size=None):
    pick = lambda low, high: int(rng.integers(low, high + 1))
    batch, heads, queries, keys, width = size or (
        pick(1, 3), int(rng.choice([1, 2, 3, 4, 6])), pick(1, 40), pick(1, 90), int(rng.choice([1, 3, 8, 16, 33, 64])))
    groups, options, flags = heads, {}, []
    if kind == "grouped":
        heads, groups = [(6, 2), (6, 3), (8, 2), (4, 1)][pick(0, 3)]
    if kind in ("causal", "alibi", "rope", "sink", "documents", "softcap"):
        queries = keys
    if kind == "bottom_right":
        keys = max(keys, queries)
    if kind == "documents":
        batch = 1
    value_width = width if rng.random() < 0.7 else width + pick(1, 9)
    draw = lambda h, n, d: rng.standard_normal((batch, h, n, d))
    query, key, value = draw(heads, queries, width), draw(groups, keys, width), draw(groups, keys, value_width)
    if kind == "rope" and width % 2:
        query, key = draw(heads, queries, 8), draw(groups, keys, 8)
        width = 8
    if sort == "flat":
        query = query * 1e-4
    if sort == "peaked":
        query = query * 50 ** 0.5 * rng.uniform(1, 4)
    if sort == "very_peaked":
        query = query * 200
    if sort == "large":
        value = value * 1e4
    if sort == "tiny":
        value = value * 1e-20
    if sort == "offset":
        value = value + 1000
    if sort == "key_offset":
        key = key + 20
    if sort == "same_keys":
        key = np.broadcast_to(key[:, :, :1], key.shape).copy()
    if sort == "outliers":
        value[..., 0] = value[..., 0] * 500
        key[..., 0] = key[..., 0] * 10
    query, key, value = (x.astype(F) for x in (query, key, value))
    if kind in ("causal", "alibi", "rope", "sink", "softcap"):
        options["causal"] = True
        flags += ["--causal"]
    if kind == "bottom_right":
        options.update(causal=True, offset=keys - queries)
        flags += ["--causal", "bottom-right"]
    if kind == "window":
        options["window"] = pick(0, 9)
        options["causal"] = True
        flags += ["--causal", "top-left", "--window", f"{options['window']},"]
        keys = max(keys, queries)
        key, value = key[:, :, :keys], value[:, :, :keys]
        if key.shape[2] < queries:
            query, queries = query[:, :, :key.shape[2]], key.shape[2]
    if kind == "lengths":
        options["lengths"] = [int(n) for n in rng.integers(1, keys + 1, batch)]
        flags += ["--key-lengths", ",".join(map(str, options["lengths"]))]
    if kind in ("mask", "empty_zero", "empty_nan"):
        mask = rng.random((batch, 1, queries, keys)) < 0.6
        mask[..., int(rng.integers(keys))] = True
        if kind != "mask":
            mask[rng.random((batch, 1, queries)) < 0.2] = False
            mask[0, 0, 0] = False
            flags += ["--empty-row", kind[6:]]
        options["mask"] = mask
        flags += ["--causal", "none"]
    if kind == "bias":
        options["bias"] = (rng.standard_normal((batch, heads, queries, keys)) * 2).astype(F)
    if kind == "softcap":
        options["softcap"] = float(rng.choice([0.5, 5.0, 30.0]))
        flags += ["--softcap", repr(options["softcap"])]
    if kind == "alibi":
        low = 2 ** int(np.log2(heads))
        of = lambda n: [2.0 ** (-8 * (h + 1) / n) for h in range(n)]
        options["slopes"] = of(low) + of(2 * low)[0::2][:heads - low]
        flags += ["--alibi"]
    if kind == "rope":
        options["rope"] = 10000.0
        flags += ["--rope", "half"]
    if kind == "sink":
        options["sink"] = (2 * rng.standard_normal(heads)).astype(F)
    if kind == "documents":
        cuts = sorted({int(c) for c in rng.integers(0, keys + 1, 2)} - {0, keys})
        options["documents"] = [0] + cuts + [keys]
        flags += ["--query-starts", ",".join(map(str, options["documents"]))]
    if kind in ("plain", "grouped", "bias"):
        flags += ["--causal", "none"]
    s = Setting(query, key, value, **options)
    s.empty_nan = kind == "empty_nan"
    return s, flags


# ---- how it is computed ----------------------------------------------------------------------------

class Arithmetic:
    """Names say what a program of that kind does; everything else is float32."""

    def __init__(self, name, **how):
        self.name = name
        self.wide = how.get("wide", F)              # what sums are made in
        self.inputs = how.get("inputs")             # the type that query, key, value are given in
        self.factors = how.get("factors")           # tf32: factors of a product are rounded
        self.dots = how.get("dots", "whole")        # order of the sums of a product
        self.scale = how.get("scale", "after")      # after, query, both
        self.base_2 = how.get("base_2", False)
        self.block = how.get("block")               # keys a block, with a running maximum
        self.splits = how.get("splits")             # parts of the keys, merged by log_sum_exp
        self.scores = how.get("scores")             # scores are kept in this type
        self.weights = how.get("weights")           # weights are rounded before the mix
        self.divide = how.get("divide", "before")   # by the sum: before or after the mix
        self.fill = how.get("fill", -np.inf)
        self.out = how.get("out", "float32")        # what the output is stored in
        self.holds = how.get("holds")               # f32 tables that hold numbers of this type
        self.flags = how.get("flags", [])


def arithmetics():
    out = [Arithmetic("float64", wide=np.float64, flags=["--precision", "f64"], out="float64"),
           Arithmetic("float64 stored f32", wide=np.float64)]
    for dots in ("whole", "loop", "reversed", "pairwise", "strided"):
        out.append(Arithmetic(f"f32 {dots}", dots=dots))
    for block in (1, 16, 32, 64, 128):
        out.append(Arithmetic(f"f32 blocks of {block}", block=block, divide="after"))
        out.append(Arithmetic(f"f32 blocks of {block}, exp2, scaled query", block=block, divide="after", base_2=True,
                              scale="query"))
    for splits in (2, 3, 7):
        out.append(Arithmetic(f"f32 split in {splits}", splits=splits))
    for fill in (-1e9, -1e30, float(np.finfo(F).min)):
        out.append(Arithmetic(f"f32 filled with {fill:g}", fill=fill))
    out += [Arithmetic("f32 exp2", base_2=True), Arithmetic("f32 scaled query", scale="query"),
            Arithmetic("f32 scaled both", scale="both"), Arithmetic("f32 divided last", divide="after")]
    out += [Arithmetic("tf32", factors="tf32", flags=["--precision", "tf32"]),
            Arithmetic("tf32 blocks", factors="tf32", flags=["--precision", "tf32"], block=32, divide="after",
                       scale="query", base_2=True)]
    for kind in ("bfloat16", "float16"):
        short = {"bfloat16": "bf16", "float16": "f16"}[kind]
        same = dict(inputs=kind, out=kind)
        flag = ["--precision", short]
        out += [
            Arithmetic(f"{short} stored, f32 inside", **same),
            Arithmetic(f"{short} stored, f32 inside, claimed", **same, flags=flag),
            Arithmetic(f"{short} weights", **same, weights=kind),
            Arithmetic(f"{short} flash", **same, weights=kind, divide="after", block=64, base_2=True),
            Arithmetic(f"{short} flash, scaled query rounded", **same, weights=kind, divide="after", block=32,
                       scale="query rounded"),
            Arithmetic(f"{short} eager", **same, scores=kind, weights=kind),
            Arithmetic(f"{short} eager, claimed", **same, scores=kind, weights=kind, flags=flag),
            Arithmetic(f"{short} scaled both rounded", **same, scale="both rounded", weights=kind),
            Arithmetic(f"{short} split", **same, splits=3, weights=kind),
            Arithmetic(f"f32 holding {short}", inputs=kind, holds=kind, weights=kind, flags=flag),
            Arithmetic(f"f32 holding {short} eager", inputs=kind, holds=kind, scores=kind, weights=kind, flags=flag),
            Arithmetic(f"f32 holding {short}, unclaimed", inputs=kind, holds=kind, weights=kind, divide="after"),
            Arithmetic(f"{short} in, f32 out", inputs=kind),
        ]
    return out


def dots(a, q, k):
    """query·key in float32, the terms added in some order."""
    q, k = (round_to(x, a.factors).astype(a.wide) for x in (q, k))
    if a.dots == "whole":
        return q @ np.swapaxes(k, -1, -2)
    if a.dots == "strided":
        return sum(q[..., n::4] @ np.swapaxes(k[..., n::4], -1, -2) for n in range(4) if q[..., n::4].shape[-1])
    term = lambda d: q[..., :, None, d] * k[..., None, :, d]
    if a.dots == "pairwise":
        halves = lambda low, high: term(low) if high - low == 1 else (
            halves(low, (low + high) // 2) + halves((low + high) // 2, high))
        return halves(0, q.shape[-1])
    order = range(q.shape[-1])[::-1] if a.dots == "reversed" else range(q.shape[-1])
    total = term(order[0])
    for d in order[1:]:
        total = total + term(d)
    return total


def scores_of(a, s, q, k, keep):
    """The masked scores, in units of ln 2 where the arithmetic wants exp2."""
    scale = a.wide(1 / np.sqrt(s.width))
    rounded = lambda x: round_to(x, a.inputs if "rounded" in a.scale else None)
    if a.scale.startswith("query"):
        q = rounded(q * scale)
    if a.scale.startswith("both"):
        q, k = rounded(q * np.sqrt(scale)), rounded(k * np.sqrt(scale))
    x = round_to(dots(a, q, k), a.scores)
    if a.scale == "after":
        x = round_to(x * scale, a.scores)
    if s.softcap:
        cap = a.wide(s.softcap)
        x = round_to(cap * np.tanh(x / cap), a.scores)
    if s.bias is not None:
        x = round_to(x + s.bias.astype(a.wide), a.scores)
    if s.slopes is not None:
        far = np.abs(s.positions()[:, None] - np.arange(s.keys)[None, :]).astype(a.wide)
        x = round_to(x - np.asarray(s.slopes, a.wide)[:, None, None] * far, a.scores)
    seen = visible_of(s)
    keep["biased"] = x
    x = np.where(seen, x, a.wide(a.fill)).astype(a.wide)
    keep["masked"] = x
    return x, seen


def exp_of(a, x):
    """e^x for differences of scores; with exp2 as kernels do, one multiplication before."""
    if a.base_2:
        return np.exp2(x * a.wide(np.log2(np.e)))
    return np.exp(x)


def finite(x):
    return np.where(np.isfinite(x), x, 0).astype(x.dtype)


def mix(a, w, v):
    w, v = round_to(w, a.weights), v
    return (round_to(w, a.factors).astype(a.wide) @ round_to(v, a.factors).astype(a.wide)).astype(a.wide)


def part_of(a, x, v, sink):
    """Some keys: their largest score, the sum of exponentials, and the mix, undivided."""
    top = x.max(-1, keepdims=True)
    if sink is not None:
        top = np.maximum(top, sink)
    e = exp_of(a, x - finite(top))
    total = e.sum(-1, keepdims=True, dtype=a.wide)
    return top, total, mix(a, e, v)


def in_blocks(a, x, v, sink):
    """A running maximum: what is there already shrinks when a larger score comes."""
    top, total, out = None, None, None
    for begin in range(0, x.shape[-1], a.block):
        part, vp = x[..., begin:begin + a.block], v[..., begin:begin + a.block, :]
        high = part.max(-1, keepdims=True)
        if top is None:
            top = high
            e = exp_of(a, part - finite(top))
            total, out = e.sum(-1, keepdims=True, dtype=a.wide), mix(a, e, vp)
            continue
        new = np.maximum(top, high)
        shrink = np.where(np.isfinite(top), exp_of(a, finite(top) - finite(new)), 0).astype(a.wide)
        e = exp_of(a, part - finite(new))
        total = total * shrink + e.sum(-1, keepdims=True, dtype=a.wide)
        out = out * shrink + mix(a, e, vp)
        top = new
    if sink is not None:
        new = np.maximum(top, sink)
        shrink = np.where(np.isfinite(top), exp_of(a, finite(top) - new), 0).astype(a.wide)
        total, out, top = total * shrink + exp_of(a, sink - new), out * shrink, new
    return top, total, out


def in_parts(a, x, v):
    """Outputs of parts of the keys, each divided, merged by their log_sum_exp."""
    cuts = [len(c) for c in np.array_split(np.arange(x.shape[-1]), a.splits) if len(c)]
    begin, outs, sums = 0, [], []
    for count in cuts:
        top, total, out = part_of(a, x[..., begin:begin + count], v[..., begin:begin + count, :], None)
        with np.errstate(all="ignore"):
            outs.append(np.where(total > 0, out / total, 0).astype(a.wide))
            sums.append(np.where(total > 0, finite(top) + np.log(total), -np.inf).astype(a.wide))
        begin += count
    lse = np.stack(sums)
    top = finite(lse.max(0))
    share = np.exp(lse - top)
    total = share.sum(0)
    with np.errstate(all="ignore"):
        out = sum(p * o for p, o in zip(share, outs)) / total
        return np.where(total > 0, top + np.log(total), -np.inf), np.where(total > 0, out, 0).astype(a.wide)


def turned(x, at, base):
    """Rotary positions with angles and their cosines in the type of x, as programs make them."""
    half, kind = x.shape[-1] // 2, x.dtype.type
    rates = kind(1) / kind(base) ** (np.arange(0, 2 * half, 2).astype(kind) / kind(2 * half))
    angles = np.asarray(at).astype(kind)[:, None] * rates
    cos, sin = np.cos(angles), np.sin(angles)
    a, b = x[..., :half], x[..., half:]
    return np.concatenate([a * cos - b * sin, b * cos + a * sin], -1)


def compute(a, s):
    """Every table of the call: scores, weights, log_sum_exp and output."""
    keep = {}
    q, k, v = (x.astype(a.wide) for x in (s.query, s.key, s.value))
    if s.rope:
        turn = lambda x, at: turned(x, at, s.rope)
        kept = None if a.out == "float32" and not a.holds else a.inputs
        q, k = round_to(turn(q, s.positions()), kept), round_to(turn(k, np.arange(s.keys)), kept)
    k, v = (np.repeat(x, s.heads // s.groups, axis=1) for x in (k, v))
    x, seen = scores_of(a, s, q, k, keep)
    sink = None if s.sink is None else s.sink.astype(a.wide)[None, :, None, None]
    with np.errstate(all="ignore"):
        if a.splits and sink is None:
            lse, out = in_parts(a, x, v)
            w = np.exp(x - finite(lse))
        else:
            if a.block:
                top, total, out = in_blocks(a, x, v, sink)
            else:
                top, total, out = part_of(a, x, v, sink)
                if sink is not None:
                    total = total + exp_of(a, sink - top)
            w = (exp_of(a, x - finite(top)) / total).astype(a.wide)
            out = mix(a, w, v) if a.divide == "before" else (out / total).astype(a.wide)
            lse = finite(top) + np.log(total)
    empty = ~seen.any(-1)
    nothing = np.nan if s.empty_nan else 0
    keep["weights"] = np.where(empty[..., None], nothing, np.where(seen, w, 0))
    keep["output"] = np.where(empty[..., None], nothing, out)
    keep["lse"] = np.where(empty & (s.sink is None), -np.inf, lse[..., 0])
    return keep


def stored(x, a):
    if a.holds:
        return round_to(x.astype(F), a.holds)
    return as_bf16(x) if a.out == "bfloat16" else x.astype(a.out)


def tensors_of(a, s, keep, tables):
    give = (lambda x: as_bf16(x)) if a.inputs == "bfloat16" and a.out == "bfloat16" else (
        lambda x: x.astype(a.out) if a.inputs and not a.holds and a.out != "float32" else x)
    out = {"query": give(s.query), "key": give(s.key), "value": give(s.value), "output": stored(keep["output"], a)}
    for name in ("mask", "bias", "sink"):
        if getattr(s, name) is not None:
            out[name] = getattr(s, name)
    if "weights" in tables:
        out["weights"] = stored(keep["weights"], a)
    if "lse" in tables:
        out["log_sum_exp"] = keep["lse"].astype(np.float64 if a.wide == np.float64 and a.out == "float64" else F)
    if "masked" in tables:
        # A program in half precision keeps its scores in it only where it says so.
        kept = stored(keep["masked"], a) if a.scores else keep["masked"].astype(F)
        out["masked"] = kept if a.out != "float64" else keep["masked"]
    return out


def narrow_inputs(a, s):
    if a.inputs:
        s.query, s.key, s.value = (round_to(x, a.inputs) for x in (s.query, s.key, s.value))


# ---- wrongs ---------------------------------------------------------------------------------------

def nth(rng, n):
    return int(rng.integers(n))


def lost_key(rng, a, s, keep):
    if s.keys < 2:
        return None
    j = nth(rng, s.keys)
    t = Setting(s.query, np.delete(s.key, j, 2), np.delete(s.value, j, 2))
    return compute_plain(a, t)


def compute_plain(a, t):
    t.empty_nan = False
    return compute(a, t)


def copy_with(keep, name, x):
    return {**keep, name: x}


def one_row(rng, a, s, keep):
    out = keep["output"].copy()
    b, h, i = nth(rng, out.shape[0]), nth(rng, out.shape[1]), nth(rng, out.shape[2])
    if out.shape[2] < 2:
        return None
    out[b, h, i] = out[b, h, (i + 1) % out.shape[2]]
    return copy_with(keep, "output", out)


def heads_exchanged(rng, a, s, keep):
    if s.heads < 2:
        return None
    out = keep["output"].copy()
    out[0, [0, 1]] = out[0, [1, 0]]
    return copy_with(keep, "output", out)


def one_head(rng, a, s, keep):
    """One head reads the keys of another."""
    if s.groups < 2 or s.groups != s.heads:
        return None
    h = nth(rng, s.heads)
    key = s.key.copy()
    key[:, h] = s.key[:, (h + 1) % s.heads]
    return compute_plain(a, Setting(s.query, key, s.value))


def last_block(rng, a, s, keep):
    full = s.keys // 64 * 64
    if full in (0, s.keys):
        return None
    return compute_plain(a, Setting(s.query, s.key[:, :, :full], s.value[:, :, :full]))


def scale_off(rng, a, s, keep):
    return compute_plain(a, Setting((s.query * F(1.01)).astype(F), s.key, s.value))


def half_sum(rng, a, s, keep):
    """The denominator is added up in float16, key by key."""
    x = keep["masked"].astype(F)
    e = np.exp(x - x.max(-1, keepdims=True))
    total = np.zeros(e.shape[:-1], np.float16)
    for j in range(e.shape[-1]):
        total = total + e[..., j].astype(np.float16)
    v = np.repeat(s.value, s.heads // s.groups, axis=1).astype(F)
    w = e / total.astype(F)[..., None]
    return {**keep, "weights": w, "output": w @ v}


def half_weights(rng, a, s, keep):
    w = keep["weights"].astype(np.float16).astype(F)
    v = np.repeat(s.value, s.heads // s.groups, axis=1).astype(F)
    return {**keep, "weights": w, "output": w @ v}


def one_nan(rng, a, s, keep):
    out = keep["output"].copy()
    out.reshape(-1)[nth(rng, out.size)] = np.nan
    return copy_with(keep, "output", out)


def other_layer(rng, a, s, keep):
    draw = lambda x: rng.standard_normal(x.shape).astype(F)
    return compute_plain(a, Setting(draw(s.query), draw(s.key), draw(s.value)))


def lse_in_log2(rng, a, s, keep):
    return copy_with(keep, "lse", keep["lse"] / F(np.log(2)))


def lse_off(rng, a, s, keep):
    return copy_with(keep, "lse", keep["lse"] + F(np.log(2)))


def one_batch_mask(rng, a, s, keep):
    """A causal mask that is off by one in one batch entry."""
    if s.queries < 2 or s.batch < 2:
        return None
    t = Setting(s.query, s.key, s.value, causal=True, offset=1)
    other = compute_plain(a, t)
    b = nth(rng, s.batch)
    return {name: np.concatenate([x[:b], other[name][b:b + 1], x[b + 1:]]) for name, x in keep.items()}


WRONGS = (("lost_key", "plain", lost_key), ("one_row", "any", one_row), ("heads_exchanged", "any", heads_exchanged),
          ("one_head", "plain", one_head), ("last_block", "plain", last_block), ("scale_off", "plain", scale_off),
          ("half_sum", "f32", half_sum), ("half_weights", "f32", half_weights), ("one_nan", "any", one_nan),
          ("other_layer", "plain", other_layer), ("lse_in_log2", "lse", lse_in_log2), ("lse_off", "lse", lse_off),
          ("one_batch_mask", "causal", one_batch_mask))


# ---- runs -----------------------------------------------------------------------------------------

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


def draw_wrong(rng, size=None):
    while True:
        name, needs, make = WRONGS[nth(rng, len(WRONGS))]
        what, a, s, flags, keep, tables = draw_right(rng, size)
        kind, sort = what.split(", ")[:2]
        if needs == "plain" and kind != "plain" or needs == "causal" and kind != "causal":
            continue
        if needs == "f32" and (a.inputs or a.factors or kind not in ("plain", "causal", "bias", "alibi")
                               or "peaked" in sort):
            continue
        if needs == "lse" and (kind in ("sink",) or a.inputs):
            continue
        if needs == "lse":
            tables = ["lse"]
        if (a.inputs or a.factors) and sort not in ("normal", "flat", "large", "tiny", "offset"):
            continue  # 16-bit scores that large may be anything
        if (a.inputs or a.factors) and kind == "softcap":
            continue
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
    options.add_argument("--least", default="1.0,1.0", help="shares of rights, wrongs")
    options.add_argument("--size", help="B,H,T,S,D for every draw")
    options.add_argument("--only", help="arithmetics whose name holds this")
    options.add_argument("--keep", help="a folder for the dumps that were misjudged")
    options.add_argument("--verbose", action="store_true")
    o = options.parse_args()
    size = [int(n) for n in o.size.split(",")] if o.size else None
    reached = True
    with tempfile.TemporaryDirectory() as folder:
        for what, rounds, share in (("rights", o.rights, float(o.least.split(",")[0])),
                                    ("wrongs", o.wrongs, float(o.least.split(",")[1]))):
            good, undecided = 0, 0
            for n in range(rounds):
                rng = np.random.default_rng([o.seed, what == "wrongs", n])
                with np.errstate(all="ignore"):
                    if what == "rights":
                        text, a, s, flags, keep, tables = draw_right(rng, size, o.only)
                    else:
                        text, a, s, flags, keep, tables = draw_wrong(rng, size)
                    tensors = tensors_of(a, s, keep, tables)
                path = os.path.join(folder, "dump.safetensors")
                write(path, tensors)
                code, report = judged(o.attest, path, flags + a.flags, [])
                # Where nothing is claimed, readings of the tensors may differ: that is no conviction.
                ok = code == (0 if what == "rights" else 1) or (not flags and code == 3)
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
