# SPDX-License-Identifier: MIT
"""The same call in many honest arithmetics, and the dump that a program of that kind would write."""
import numpy as np

from attention import visible_of
from tensors import as_bf16, round_to

F = np.float32


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
