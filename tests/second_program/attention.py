# SPDX-License-Identifier: MIT
"""Attention and its mistakes, a second time: whole tables in numpy, from the formulas of the
literature. It knows nothing of the library that it is used to test.

A setting says what is right. A mistake replaces one or two steps of `run`, so that several can be
made at once:

    arrange (query, key, value) -> rotate -> call (query, key, value) -> matrices -> spread key/value
    heads over query heads -> scores -> early -> scale -> cap -> bias, alibi -> hide -> weigh -> mix
    -> output

What is arranged is memory, before positions are known; what is called is attention itself. Keys that
are not `kept` are lost on the way there: nothing later knows of them.
"""
import numpy as np

INF = np.inf


class Setting:
    """One call: tensors, and the options that are claimed of it."""

    def __init__(self, query, key, value, **options):
        self.query, self.key, self.value = query, key, value
        self.causal = options.get("causal", False)
        self.offset = options.get("offset", 0)      # key position of query 0
        self.window = options.get("window")         # keys to the left of the query's own
        self.lengths = options.get("lengths")       # [B]
        self.mask = options.get("mask")             # bool, broadcasts to [B, H, T, S]
        self.documents = options.get("documents")   # cumulative starts, T = S
        self.bias = options.get("bias")             # broadcasts
        self.softcap = options.get("softcap")
        self.slopes = options.get("slopes")         # [H]
        self.sink = options.get("sink")             # [H]
        self.rope = options.get("rope")             # base; half-split pairs, whole width
        self.past = options.get("past", 0)
        self.batch, self.heads, self.queries, self.width = query.shape
        self.groups, self.keys = key.shape[1], key.shape[2]

    def positions(self):
        return np.arange(self.queries) + self.offset

    def restricted(self):
        return (self.causal or self.window is not None or self.lengths is not None
                or self.mask is not None or self.documents is not None)


def alibi_slopes(heads):
    low = 2 ** int(np.log2(heads))
    of = lambda n: [2.0 ** (-8 * (h + 1) / n) for h in range(n)]
    return of(low) + of(2 * low)[0::2][:heads - low]


def document_of(starts, n):
    return np.searchsorted(np.asarray(starts), np.arange(n), side="right")


def causal_part(s, shift=0):
    return np.arange(s.keys)[None, :] <= s.positions()[:, None] + shift


def window_part(s, left=None):
    left = s.window if left is None else left
    return np.arange(s.keys)[None, :] >= s.positions()[:, None] - left


def visible_of(s, causal=causal_part, window=window_part, lengths=None, mask=None, documents=None):
    shape = (s.batch, s.heads, s.queries, s.keys)
    seen = np.ones(shape, bool)
    if s.causal and causal is not None:
        seen &= causal(s)
    if s.window is not None and window is not None:
        seen &= window(s)
    n = s.lengths if lengths is None else lengths
    if n is not None and n is not False:
        seen &= (np.arange(s.keys)[None, :] < np.asarray(n)[:, None])[:, None, None, :]
    m = s.mask if mask is None else mask
    if m is not None and m is not False:
        seen &= np.broadcast_to(m, shape)
    d = s.documents if documents is None else documents
    if d is not None and d is not False:
        name = document_of(d, s.keys)
        seen &= name[:, None] == name[None, :]
    return seen


def rotate(x, positions, base, width=None, pairs="half", exponent=2.0, sign=1.0, table="half"):
    """x [B, H, N, D]: pair i turns by position * base^(-2i/D)."""
    d = x.shape[-1] if width is None else width
    half = d // 2
    angles = np.asarray(positions, float)[:, None] * base ** (-exponent * np.arange(half) / d)
    cos, sin = np.cos(angles), sign * np.sin(angles)
    out = x.copy()
    if pairs == "half":
        a, b = x[..., :half], x[..., half:d]
        out[..., :half], out[..., half:d] = a * cos - b * sin, b * cos + a * sin
    else:
        a, b = x[..., 0:d:2], x[..., 1:d:2]
        if table == "doubled":  # the table made for halves, one entry a feature
            whole = np.concatenate([angles, angles], 1)
            c0, s0 = np.cos(whole[:, 0:d:2]), sign * np.sin(whole[:, 0:d:2])
            c1, s1 = np.cos(whole[:, 1:d:2]), sign * np.sin(whole[:, 1:d:2])
            out[..., 0:d:2], out[..., 1:d:2] = a * c0 - b * s0, b * c1 + a * s1
        else:
            out[..., 0:d:2], out[..., 1:d:2] = a * cos - b * sin, b * cos + a * sin
    return out


def softmax(x, axis=-1):
    top = np.max(x, axis=axis, keepdims=True)
    top = np.where(np.isfinite(top), top, 0)
    e = np.exp(x - top)
    total = e.sum(axis=axis, keepdims=True)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(total > 0, e / total, 0)


def run(s, steps=None):
    """The output [B, H, T, E]; `steps` replaces steps by name."""
    step = dict(
        arrange=lambda q, k, v: (q, k, v),
        rotate_query=lambda q: rotate(q, s.positions(), s.rope) if s.rope else q,
        rotate_key=lambda k: rotate(k, np.arange(k.shape[2]), s.rope) if s.rope else k,
        rotate_value=lambda v: v,
        call=lambda q, k, v: (q, k, v),
        kept=lambda n: slice(0, n),
        matrices=lambda k, v: (k, v),
        spread_key=lambda k: np.repeat(k, s.heads // s.groups, axis=1),
        spread_value=lambda v: np.repeat(v, s.heads // s.groups, axis=1),
        query_heads=lambda q: q,
        early=lambda x: x,
        scale=lambda x, d: x / np.sqrt(d),
        cap=lambda x: s.softcap * np.tanh(x / s.softcap) if s.softcap else x,
        cap_late=lambda x, seen: x,
        bias=lambda x: x if s.bias is None else x + s.bias,
        alibi=lambda x: x if s.slopes is None else x - np.asarray(s.slopes)[:, None, None]
        * np.abs(s.positions()[:, None] - np.arange(s.keys)[None, :]),
        visible=lambda: visible_of(s),
        hide=lambda x, seen: np.where(seen, x, -INF),
        weigh=None,
        weights=lambda w, seen: w,
        value=lambda v: v,
        mix=lambda w, v: w @ v,
        output=lambda o: o,
    )
    if s.sink is None:
        step["weigh"] = lambda x: softmax(x)
    else:
        def with_sink(x, sink=np.asarray(s.sink, float)):
            extra = np.broadcast_to(sink[None, :, None, None], x.shape[:3] + (1,))
            return softmax(np.concatenate([x, extra], -1))[..., :-1]
        step["weigh"] = with_sink
    step.update(steps or {})
    q, k, v = (np.asarray(t, float) for t in (s.query, s.key, s.value))
    q, k, v = step["arrange"](q, k, v)
    q, k, v = step["rotate_query"](q), step["rotate_key"](k), step["rotate_value"](v)
    q, k, v = step["call"](q, k, v)
    slots = k.shape[2]
    kept = step["kept"](slots)
    k, v = step["matrices"](k[:, :, kept], v[:, :, kept])
    q, k, v = step["query_heads"](q), step["spread_key"](k), step["spread_value"](v)
    dots = q @ np.swapaxes(k, -1, -2)
    x = np.zeros(dots.shape[:3] + (slots,))  # masks and biases are of all slots
    x[..., kept] = dots
    x = step["scale"](step["early"](x), q.shape[-1])
    x = step["alibi"](step["bias"](step["cap"](x)))
    seen = step["visible"]()
    x = step["cap_late"](step["hide"](x, seen), seen)
    seen = np.broadcast_to(seen, x.shape)[..., kept]
    w = step["weights"](step["weigh"](x[..., kept]), seen)
    return step["output"](step["mix"](w, step["value"](v)))
