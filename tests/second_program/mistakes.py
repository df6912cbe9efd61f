# SPDX-License-Identifier: MIT
"""Mistakes that people make in attention, each as the steps that it replaces (see attention.py)."""
import numpy as np

from attention import (INF, causal_part, document_of, rotate, softmax, visible_of, window_part)

ALL = []


def mistake(name, axis, when=lambda s: True):
    def keep(make):
        ALL.append((name, axis, when, make))
        return make
    return keep


def heads_differ(s):
    return s.groups != s.heads and s.groups > 1


# ---- scale
def scaled(name, factor, when=lambda s: True):
    ALL.append((name, "scale", when, lambda s: {"scale": lambda x, d: x * factor(s, d)}))


scaled("scale.none", lambda s, d: 1.0)
scaled("scale.twice", lambda s, d: 1.0 / d)
scaled("scale.half", lambda s, d: d ** -0.25)
scaled("scale.multiplied", lambda s, d: d ** 0.5)
scaled("scale.sqrt_d_model", lambda s, d: (s.heads * d) ** -0.5, lambda s: s.heads > 1)
scaled("scale.sqrt_heads", lambda s, d: s.heads ** -0.5, lambda s: s.heads not in (1, s.width))
scaled("scale.sign_flipped", lambda s, d: -d ** -0.5)
scaled("softmax.base2", lambda s, d: np.log(2) / d ** 0.5, lambda s: plain_scores(s))
scaled("softmax.exp_with_log2e", lambda s, d: 1 / (np.log(2) * d ** 0.5), lambda s: plain_scores(s))
for padded in (8, 32, 64, 128):
    scaled("scale.padded_head_dim", lambda s, d, p=padded: (-(-d // p) * p) ** -0.5,
           lambda s, p=padded: s.width % p != 0)


def plain_scores(s):
    return s.bias is None and s.slopes is None and s.softcap is None and s.sink is None


# ---- softmax
def weighed(name, f, when=lambda s: True):
    ALL.append((name, "softmax", when, lambda s: {"weigh": lambda x: f(s, x)}))


def no_sink(s):
    return s.sink is None


weighed("softmax.over_queries", lambda s, x: softmax(x, axis=-2), no_sink)
weighed("softmax.over_heads", lambda s, x: softmax(x, axis=1), lambda s: no_sink(s) and s.heads > 1)
weighed("softmax.over_batch", lambda s, x: softmax(x, axis=0), lambda s: no_sink(s) and s.batch > 1)
weighed("softmax.over_all_pairs",
        lambda s, x: softmax(x.reshape(x.shape[:2] + (-1,))).reshape(x.shape), no_sink)
weighed("softmax.unnormalised",
        lambda s, x: np.exp(x - np.where(np.isfinite(x.max(-1, keepdims=True)),
                                         x.max(-1, keepdims=True), 0)), no_sink)
weighed("softmax.sigmoid", lambda s, x: 1 / (1 + np.exp(-x)), no_sink)
weighed("softmax.plus_one",
        lambda s, x: softmax(np.concatenate([x, np.zeros(x.shape[:3] + (1,))], -1))[..., :-1], no_sink)


@mistake("softmax.missing", "softmax", no_sink)
def missing(s):
    return {"weigh": lambda x: np.where(np.isfinite(x), x, 0)}


@mistake("softmax.twice", "softmax", no_sink)
def twice(s):  # the second one sees the zeros of hidden keys
    return {"weights": lambda w, seen: softmax(w)}


for block in (16, 32, 64, 128):
    @mistake("tail.zero_keys_counted", "softmax", lambda s, n=block: no_sink(s) and s.keys % n)
    def tail(s, n=block):
        return {"weigh": lambda x: softmax(
            np.concatenate([x, np.zeros(x.shape[:3] + (-x.shape[-1] % n,))], -1))[..., :x.shape[-1]]}


# ---- layout
def packed(x):  # [B, H, N, D] as memory of [B, N, H*D]
    return np.ascontiguousarray(np.swapaxes(x, 1, 2)).reshape(x.shape[0], x.shape[2], -1)


def unpacked(x, heads):
    b, n, c = x.shape
    return np.swapaxes(x.reshape(b, n, heads, c // heads), 1, 2)


def split_by_reshape(x):
    return packed(x).reshape(x.shape)


def merged_by_reshape(o):  # what [B, N, H*E] memory holds, back in our order
    return unpacked(np.ascontiguousarray(o).reshape(o.shape[0], o.shape[2], -1), o.shape[1])


def alone(s):
    return s.past == 0 and s.heads > 1


def split_all(q, k, v):
    return split_by_reshape(q), split_by_reshape(k), split_by_reshape(v)


def equal_heads(s):
    return alone(s) and s.groups == s.heads


@mistake("layout.heads_split_by_reshape", "layout", alone)
def split(s):
    return {"arrange": split_all}


@mistake("layout.heads_merged_by_reshape", "layout", lambda s: s.heads > 1)
def merge(s):
    return {"output": merged_by_reshape}


@mistake("layout.split_and_merge_by_reshape", "layout", alone)
def both(s):
    return {"arrange": split_all, "output": merged_by_reshape}


def dim_major(x):  # the packed row read as (d h)
    b, h, n, d = x.shape
    return np.transpose(packed(x).reshape(b, n, d, h), (0, 3, 1, 2))


@mistake("layout.head_dim_major_split", "layout", equal_heads)
def major(s):
    return {"arrange": lambda q, k, v: (dim_major(q), dim_major(k), dim_major(v))}


@mistake("layout.head_dim_major_all", "layout", equal_heads)
def major_all(s):
    def out(o):
        b, h, n, e = o.shape
        return unpacked(np.transpose(o, (0, 2, 3, 1)).reshape(b, n, e * h), h)
    return {"arrange": lambda q, k, v: (dim_major(q), dim_major(k), dim_major(v)), "output": out}


def free(s):  # nothing that speaks of positions or heads
    return (not s.restricted() and s.bias is None and s.slopes is None and s.sink is None
            and not s.rope and s.past == 0 and s.groups == s.heads)


@mistake("layout.bshd_as_bhsd", "layout", lambda s: free(s) and s.queries == s.keys and s.heads > 1)
def bshd(s):
    swap = lambda x: np.swapaxes(x, 1, 2)
    return {"arrange": lambda q, k, v: (swap(q), swap(k), swap(v)),
            "spread_key": lambda k: k, "spread_value": lambda v: v, "output": swap,
            "visible": lambda: True, "hide": lambda x, seen: x}


@mistake("layout.attends_over_batch", "layout", lambda s: free(s) and s.queries == s.keys and s.batch > 1)
def over_batch(s):
    swap = lambda x: np.swapaxes(x, 0, 2)
    return {"arrange": lambda q, k, v: (swap(q), swap(k), swap(v)), "output": swap,
            "visible": lambda: True, "hide": lambda x, seen: x}


def one_size(s):
    return s.value.shape[-1] == s.width


@mistake("layout.k_v_swapped", "roles", one_size)
def kv_swapped(s):
    return {"call": lambda q, k, v: (q, v, k)}


@mistake("roles.k_v_swapped_before_rope", "roles", lambda s: one_size(s) and bool(s.rope))
def kv_swapped_early(s):
    return {"arrange": lambda q, k, v: (q, v, k)}


@mistake("layout.q_k_swapped", "roles", lambda s: s.queries == s.keys and s.groups == s.heads and s.past == 0)
def qk_swapped(s):
    return {"call": lambda q, k, v: (k, q, v)}


@mistake("layout.k_reshaped_not_transposed", "layout")
def k_reshaped(s):
    return {"matrices": lambda k, v: (
        np.swapaxes(k.reshape(k.shape[:2] + (k.shape[3], k.shape[2])), 2, 3), v)}


@mistake("layout.v_reshaped", "layout")
def v_reshaped(s):
    return {"matrices": lambda k, v: (
        k, np.swapaxes(v.reshape(v.shape[:2] + (v.shape[3], v.shape[2])), 2, 3))}


@mistake("layout.batch_rolled", "layout", lambda s: s.batch > 1)
def rolled(s):
    return {"arrange": lambda q, k, v: (q, np.roll(k, 1, 0), np.roll(v, 1, 0))}


def fused(s):
    return s.groups == s.heads and s.queries == s.keys and one_size(s) and s.past == 0 and s.heads > 1


@mistake("qkv.blocked_read_as_interleaved", "layout", fused)
def blocked(s):
    def arrange(q, k, v):
        b, h, n, d = q.shape
        row = np.stack([np.swapaxes(t, 1, 2) for t in (q, k, v)], 2).reshape(b, n, h, 3, d)
        return tuple(np.swapaxes(row[:, :, :, r], 1, 2) for r in range(3))
    return {"arrange": arrange}


@mistake("qkv.interleaved_read_as_blocked", "layout", fused)
def interleaved(s):
    def arrange(q, k, v):
        b, h, n, d = q.shape
        row = np.stack([np.swapaxes(t, 1, 2) for t in (q, k, v)], 3).reshape(b, n, 3, h, d)
        return tuple(np.swapaxes(row[:, :, r], 1, 2) for r in range(3))
    return {"arrange": arrange}


# ---- heads
def grouped(name, key, value, when=heads_differ):
    ALL.append((name, "heads", when, lambda s: {"spread_key": lambda k: key(s, k),
                                                "spread_value": lambda v: value(s, v)}))


repeat = lambda s, x: np.repeat(x, s.heads // s.groups, 1)
tile = lambda s, x: np.tile(x, (1, s.heads // s.groups, 1, 1))
first = lambda s, x: np.repeat(x[:, :1], s.heads, 1)
grouped("gqa.tile", tile, tile)
grouped("gqa.k_interleave_v_tile", repeat, tile)
grouped("gqa.all_kv0", first, first)
grouped("heads.all_use_kv0", first, first, lambda s: s.groups == s.heads and s.heads > 1)


@mistake("gqa.groups_averaged", "heads", heads_differ)
def averaged(s):
    n = s.heads // s.groups
    return {"query_heads": lambda q: np.repeat(
        q.reshape(q.shape[0], s.groups, n, *q.shape[2:]).mean(2), n, 1)}


# ---- keys
def lost(s):
    return s.keys > 2


def without(j):
    return {"kept": lambda n: np.delete(np.arange(n), j)}


@mistake("kv.first_key_dropped", "keys", lost)
def first_lost(s):
    return without(0)


@mistake("kv.last_key_dropped", "keys", lost)
def last_lost(s):
    return without(-1)


# ---- rope
def rope(name, **steps):
    ALL.append((name, "rope", lambda s: bool(s.rope), lambda s: {
        k: (lambda x, f=f: f(s, x)) for k, f in steps.items()}))


def q_at(**options):
    return lambda s, x: rotate(x, s.positions(), s.rope, **options)


def k_at(**options):
    return lambda s, x: rotate(x, np.arange(x.shape[2]), s.rope, **options)


rope("rope.interleaved_for_half", rotate_query=q_at(pairs="x"), rotate_key=k_at(pairs="x"))
rope("rope.none", rotate_query=lambda s, x: x, rotate_key=lambda s, x: x)
rope("rope.q_only", rotate_key=lambda s, x: x)
rope("rope.k_only", rotate_query=lambda s, x: x)
rope("rope.applied_twice", rotate_query=lambda s, x: q_at()(s, q_at()(s, x)),
     rotate_key=lambda s, x: k_at()(s, k_at()(s, x)))
ALL.append(("rope.v_rotated_too", "rope", lambda s: s.rope and s.value.shape[-1] % 2 == 0,
            lambda s: {"rotate_value": lambda v: k_at()(s, v)}))
rope("rope.mixed_layout_tables", rotate_query=q_at(pairs="x", table="doubled"),
     rotate_key=k_at(pairs="x", table="doubled"))
rope("rope.freq_i/d", rotate_query=q_at(exponent=1.0), rotate_key=k_at(exponent=1.0))
rope("rope.direction_reversed", rotate_query=q_at(sign=-1), rotate_key=k_at(sign=-1))
rope("rope.offset+1_q", rotate_query=lambda s, x: rotate(x, s.positions() + 1, s.rope))
for other in (5e5, 1e6, 1e5):
    rope("rope.base", rotate_query=lambda s, x, b=other: rotate(x, s.positions(), b),
         rotate_key=lambda s, x, b=other: rotate(x, np.arange(x.shape[2]), b))
ALL.append(("rope.partial_half", "rope", lambda s: s.rope and s.width % 4 == 0, lambda s: {
    "rotate_query": lambda x: q_at(width=s.width // 2)(s, x),
    "rotate_key": lambda x: k_at(width=s.width // 2)(s, x)}))
ALL.append(("rope.offset_missing_q", "rope", lambda s: s.rope and s.offset, lambda s: {
    "rotate_query": lambda x: rotate(x, np.arange(s.queries), s.rope)}))
ALL.append(("rope.cached_keys_unrotated", "rope", lambda s: s.rope and s.past, lambda s: {
    "rotate_key": lambda k: np.concatenate([k[:, :, :s.past], k_at()(s, k)[:, :, s.past:]], 2)}))
ALL.append(("rope.new_keys_at_0", "rope", lambda s: s.rope and s.past, lambda s: {
    "rotate_key": lambda k: np.concatenate(
        [k_at()(s, k)[:, :, :s.past], rotate(k[:, :, s.past:], np.arange(s.keys - s.past), s.rope)], 2)}))


# ---- softcap
def capped(name, f=None, when=lambda s: True, **steps):
    steps = {k: f for k, f in steps.items()}
    if f is not None:
        steps["cap"] = f
    ALL.append((name, "softcap", lambda s: bool(s.softcap) and when(s),
                lambda s: {k: (lambda *x, g=g: g(s, *x)) for k, g in steps.items()}))


capped("softcap.missing", lambda s, x: x)
capped("softcap.no_multiply_back", lambda s, x: np.tanh(x / s.softcap))
capped("softcap.no_divide", lambda s, x: s.softcap * np.tanh(x))
capped("softcap.clip", lambda s, x: np.clip(x, -s.softcap, s.softcap))
capped("softcap.before_scale", scale=lambda s, x, d: s.softcap * np.tanh(x / s.softcap) / d ** 0.5,
       cap=lambda s, x: x)
capped("softcap.after_mask", lambda s, x: x, lambda s: s.restricted() and s.bias is None and s.slopes is None,
       cap_late=lambda s, x, seen: s.softcap * np.tanh(x / s.softcap))


# ---- bias, alibi, sink
def biased(name, f, when=lambda s: True):
    ALL.append((name, "bias", lambda s: s.bias is not None and when(s),
                lambda s: {"bias": lambda x: f(s, x)}))


biased("bias.missing", lambda s, x: x)
biased("bias.sign", lambda s, x: x - s.bias)
biased("bias.multiplied", lambda s, x: x * s.bias)
biased("bias.batch0", lambda s, x: x + s.bias[:1], lambda s: s.bias.shape[0] > 1)
biased("bias.head0", lambda s, x: x + s.bias[:, :1], lambda s: s.bias.shape[1] > 1)
biased("bias.transposed", lambda s, x: x + np.swapaxes(s.bias, -1, -2), lambda s: s.queries == s.keys)
ALL.append(("bias.scaled_with_scores", "bias", lambda s: s.bias is not None and not s.softcap, lambda s: {
    "early": lambda x: x + s.bias, "bias": lambda x: x}))
ALL.append(("bias.after_softmax", "bias", lambda s: s.bias is not None and not s.restricted(), lambda s: {
    "bias": lambda x: x, "weights": lambda w, seen: w + s.bias}))
ALL.append(("bias.as_bool", "bias", lambda s: s.bias is not None, lambda s: {
    "bias": lambda x: np.where(s.bias > 0, x, -INF)}))


def distance(s):
    return np.abs(s.positions()[:, None] - np.arange(s.keys)[None, :])


def slopes_geometric(h):
    return 2.0 ** (-8 * (np.arange(h) + 1) / h)


def slanted(name, f, when=lambda s: True):
    ALL.append((name, "alibi", lambda s: s.slopes is not None and when(s),
                lambda s: {"alibi": lambda x: f(s, x, np.asarray(s.slopes)[:, None, None])}))


slanted("alibi.missing", lambda s, x, m: x)
slanted("alibi.sign", lambda s, x, m: x + m * distance(s))
ALL.append(("alibi.before_scale", "alibi", lambda s: s.slopes is not None and not s.softcap, lambda s: {
    "early": lambda x: x - np.asarray(s.slopes)[:, None, None] * distance(s), "alibi": lambda x: x}))
slanted("alibi.heads_reversed", lambda s, x, m: x - m[::-1] * distance(s))
slanted("alibi.one_slope_all_heads", lambda s, x, m: x - m[:1] * distance(s))
slanted("alibi.geometric_non_pow2",
        lambda s, x, m: x - slopes_geometric(s.heads)[:, None, None] * distance(s),
        lambda s: s.heads & (s.heads - 1))


def sunk(name, f, when=lambda s: True):
    ALL.append((name, "sink", lambda s: s.sink is not None and when(s),
                lambda s: {"weigh": lambda x: f(s, x)}))


def with_sink(x, sink):
    extra = np.broadcast_to(np.asarray(sink, float)[None, :, None, None], x.shape[:3] + (1,))
    return softmax(np.concatenate([x, extra], -1))[..., :-1]


sunk("sink.missing", lambda s, x: softmax(x))
sunk("sink.sign", lambda s, x: with_sink(x, -np.asarray(s.sink)))
sunk("sink.scaled", lambda s, x: with_sink(x, np.asarray(s.sink) / s.width ** 0.5))
sunk("sink.heads_reversed", lambda s, x: with_sink(x, np.asarray(s.sink)[::-1]))


# ---- masks
def masked(name, when, **steps):
    ALL.append((name, "mask", when, lambda s: {k: (lambda *x, f=f: f(s, *x)) for k, f in steps.items()}))


def has_mask(s):
    return s.mask is not None


def has_lengths(s):
    return s.lengths is not None


masked("mask.ignored", lambda s: has_mask(s), visible=lambda s: visible_of(s, mask=False))
masked("mask.ignored", lambda s: has_lengths(s), visible=lambda s: visible_of(s, lengths=False))
masked("mask.inverted", has_mask, visible=lambda s: visible_of(s, mask=~s.mask))
masked("mask.transposed", lambda s: has_mask(s) and s.queries == s.keys,
       visible=lambda s: visible_of(s, mask=np.swapaxes(s.mask, -1, -2)))
masked("mask.batch0_used_for_all", lambda s: has_mask(s) and s.mask.shape[0] > 1,
       visible=lambda s: visible_of(s, mask=s.mask[:1]))
masked("mask.batch0_used_for_all", lambda s: has_lengths(s) and len(set(s.lengths)) > 1,
       visible=lambda s: visible_of(s, lengths=[s.lengths[0]] * s.batch))
masked("mask.shifted_by_one_longer", has_lengths,
       visible=lambda s: visible_of(s, lengths=np.asarray(s.lengths) + 1))
masked("mask.shifted_by_one_shorter", has_lengths,
       visible=lambda s: visible_of(s, lengths=np.asarray(s.lengths) - 1))
masked("mask.left_instead_of_right_pad", lambda s: has_lengths(s) and not s.causal and s.window is None,
       visible=lambda s: np.broadcast_to((np.arange(s.keys)[None, :] >= s.keys - np.asarray(s.lengths)[:, None])
                                         [:, None, None, :], (s.batch, s.heads, s.queries, s.keys)))
masked("mask.zero_scores", lambda s: has_mask(s) and not s.causal,
       hide=lambda s, x, seen: np.where(seen, x, 0))
masked("mask.after_softmax_no_renorm", lambda s: has_mask(s) and not s.causal,
       hide=lambda s, x, seen: x, weights=lambda s, w, seen: np.where(seen, w, 0))
masked("mask.bool_added_as_float", lambda s: has_mask(s) and not s.causal,
       hide=lambda s, x, seen: x + seen)
masked("compose.mask_only", lambda s: has_mask(s) and s.causal, visible=lambda s: visible_of(s, causal=None))
masked("compose.causal_only", lambda s: has_mask(s) and s.causal, visible=lambda s: visible_of(s, mask=False))
masked("compose.or", lambda s: has_mask(s) and s.causal and s.window is None and s.lengths is None,
       visible=lambda s: np.broadcast_to(s.mask | causal_part(s), (s.batch, s.heads, s.queries, s.keys)))


# ---- causal, window, documents
def hides_future(name, f, when=lambda s: True):
    ALL.append((name, "causal", lambda s: s.causal and when(s),
                lambda s: {"visible": lambda: visible_of(s, causal=f)}))


def only_causal(s):
    return s.mask is None and s.window is None


hides_future("causal.missing", None, only_causal)
hides_future("causal.strict", lambda s: causal_part(s, -1))
hides_future("causal.one_future", lambda s: causal_part(s, 1))
hides_future("causal.reversed", lambda s: np.arange(s.keys)[None, :] >= s.positions()[:, None], only_causal)
hides_future("causal.reversed_strict", lambda s: np.arange(s.keys)[None, :] > s.positions()[:, None], only_causal)
hides_future("causal.top_left", lambda s: np.arange(s.keys)[None, :] <= np.arange(s.queries)[:, None],
             lambda s: s.offset and only_causal(s))
hides_future("causal.first_row_open",
             lambda s: causal_part(s) | (np.arange(s.queries) == 0)[:, None])
hides_future("causal.last_row_open",
             lambda s: causal_part(s) | (np.arange(s.queries) == s.queries - 1)[:, None],
             lambda s: s.offset + s.queries < s.keys)
for block in (2, 4, 8):
    hides_future("causal.block", lambda s, n=block: np.arange(s.keys)[None, :]
                 <= (s.positions() // n * n + n - 1)[:, None], lambda s: only_causal(s))
ALL.append(("causal.zero_scores", "causal", lambda s: s.causal and only_causal(s), lambda s: {
    "hide": lambda x, seen: np.where(seen, x, 0)}))
ALL.append(("causal.after_softmax_no_renorm", "causal", lambda s: s.causal and only_causal(s), lambda s: {
    "hide": lambda x, seen: x, "weights": lambda w, seen: np.where(seen, w, 0)}))


def windowed(name, f, when=lambda s: True):
    ALL.append((name, "window", lambda s: s.window is not None and when(s),
                lambda s: {"visible": lambda: visible_of(s, window=f)}))


windowed("window.missing", None)
windowed("window.W+1_keys", lambda s: window_part(s, s.window + 1))
windowed("window.W-1_keys", lambda s: window_part(s, s.window - 1), lambda s: s.window > 0)
windowed("window.2W", lambda s: window_part(s, 2 * (s.window + 1) - 1), lambda s: s.window > 0)
windowed("window.first_token_kept", lambda s: window_part(s) | (np.arange(s.keys) == 0)[None, :])
windowed("window.chunked", lambda s: np.arange(s.keys)[None, :] // (s.window + 1)
         == (s.positions() // (s.window + 1))[:, None], lambda s: s.window > 0)
ALL.append(("window.only_no_causal", "window", lambda s: s.window is not None and s.causal, lambda s: {
    "visible": lambda: visible_of(s, causal=None)}))


def documented(name, f):
    ALL.append((name, "packing", lambda s: s.documents is not None,
                lambda s: {"visible": lambda: visible_of(s, documents=f(s))}))


documented("varlen.documents_leak", lambda s: False)
documented("varlen.boundary_off_by_one",
           lambda s: [0] + [n + 1 for n in s.documents[1:-1]] + [s.documents[-1]])


# ---- output
@mistake("dropout.scale_only", "dropout")
def scale_only(s):
    return {"weights": lambda w, seen: w / 0.9}


@mistake("out.v_mean", "output", lambda s: not s.restricted() and s.sink is None and s.bias is None)
def mean(s):
    return {"weights": lambda w, seen: np.full_like(w, 1 / w.shape[-1])}


@mistake("out.is_v_of_argmax", "output", lambda s: s.sink is None)
def hard(s):  # in place of the softmax: there is none that could be wrong too
    return {"weigh": lambda x: np.eye(x.shape[-1])[x.argmax(-1)] * np.isfinite(x.max(-1, keepdims=True))}
