# SPDX-License-Identifier: MIT
"""Slips too small to see, put into a call that was computed right: what the tables are then, or None where
the call has no place for that slip."""
import numpy as np

from arithmetic import compute
from attention import Setting

F = np.float32


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
