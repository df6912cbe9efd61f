#!/usr/bin/python3
# SPDX-License-Identifier: MIT
"""Writes oracle_goldens.inc: what the oracle must reproduce, from formulas of its own.

    python3 make_oracle_goldens.py > oracle_goldens.inc        (needs mpmath)

Everything is evaluated with 130 digits on short binary fractions that the C++ test makes by the same
rule. Gradients are central differences with a step of 1e-40: right to about 80 digits.
"""
import itertools

import mpmath as mp
from mpmath import mpf

mp.mp.dps = 130
STEP = mpf(10) ** -40
NINF = mp.ninf


def fraction(seed, k):
    """The k-th number of a stream: a multiple of 1/64 in [-2, 2]."""
    return mpf((seed * 7919 + k * 104729 + k * k * 31 + seed * k * 17) % 257 - 128) / 64


class Grid:
    """A dense array: a shape, and its numbers row by row."""

    def __init__(self, shape, numbers):
        self.shape, self.numbers = tuple(shape), list(numbers)

    def __getitem__(self, index):
        offset = 0
        for extent, i in zip(self.shape, index):
            offset = offset * extent + i
        return self.numbers[offset]


def stream(seed, *shape, factor=1, plus=0):
    count = 1
    for extent in shape:
        count *= extent
    return Grid(shape, [plus + factor * fraction(seed, k) for k in range(count)])


def places(*shape):
    return itertools.product(*map(range, shape))


# ---- formulas ----------------------------------------------------------------------------------


def attention(q, k, v, see, scale=None, softcap=None, bias=None, slopes=None, position=None,
              sink=None):
    """see(b, h, i, j) -> bool; position(b, i) for ALiBi. Rows that see nothing: output 0."""
    B, H, T, D = q.shape
    G, S, E = k.shape[1], k.shape[2], v.shape[3]
    output, lse = [], []
    for b, h, i in places(B, H, T):
        g = h * G // H
        terms = []
        for j in range(S):
            if not see(b, h, i, j):
                continue
            s = mp.fsum(q[b, h, i, d] * k[b, g, j, d] for d in range(D))
            s = s / mp.sqrt(D) if scale is None else s * scale
            if softcap is not None:
                s = softcap * mp.tanh(s / softcap)
            if bias is not None:
                s += bias[tuple(0 if n == 1 else x for n, x in zip(bias.shape, (b, h, i, j)))]
            if slopes is not None:
                s -= slopes[h] * abs(position(b, i) - j)
            terms.append((j, s))
        if not terms:
            output += [mpf(0)] * E
            lse.append(NINF)
            continue
        top = max(s for _, s in terms)
        total = mp.fsum(mp.exp(s - top) for _, s in terms)
        if sink is not None:
            total += mp.exp(sink[h,] - top)
        for e in range(E):
            output.append(mp.fsum(mp.exp(s - top) / total * v[b, g, j, e] for j, s in terms))
        lse.append(top + mp.log(total))
    return output, lse


def matmul(x, w, bias=None):
    n, k = x.shape
    m = w.shape[1]
    return Grid((n, m), [mp.fsum(x[r, i] * w[i, c] for i in range(k)) + (bias[c,] if bias else 0)
                         for r, c in places(n, m)])


def norm(x, gain=None, bias=None, eps=0, rms=False):
    n, c = x.shape
    out = []
    for r in range(n):
        row = [x[r, i] for i in range(c)]
        mean = mpf(0) if rms else mp.fsum(row) / c
        spread = mp.fsum((y - mean) ** 2 for y in row) / c
        for i in range(c):
            y = (row[i] - mean) / mp.sqrt(spread + eps)
            out.append(y * (gain[i,] if gain else 1) + (bias[i,] if bias else 0))
    return Grid(x.shape, out)


ACTIVATIONS = {
    'relu': lambda x: x if x > 0 else mpf(0),
    'gelu_erf': lambda x: x * mp.ncdf(x),
    'gelu_tanh': lambda x: x / 2 * (1 + mp.tanh(mp.sqrt(2 / mp.pi) *
                                                (x + mpf('0.044715') * x ** 3))),
    'silu': lambda x: x / (1 + mp.exp(-x)),
}


def activate(kind, x):
    return Grid(x.shape, [ACTIVATIONS[kind](y) for y in x.numbers])


def add(a, b):
    return Grid(a.shape, [x + y for x, y in zip(a.numbers, b.numbers)])


def rope(x, base, turned, half, offset):
    """Complex rotation: the pair (a, b) is a + ib, times exp(i·angle)."""
    *_, T, D = x.shape
    out = list(x.numbers)
    for row in range(len(out) // D):
        for i in range(turned // 2):
            one, two = (i, i + turned // 2) if half else (2 * i, 2 * i + 1)
            angle = (offset + row % T) / mp.power(base, mpf(2 * i) / turned)
            z = mp.mpc(x.numbers[row * D + one], x.numbers[row * D + two]) * mp.expj(angle)
            out[row * D + one], out[row * D + two] = z.real, z.imag
    return Grid(x.shape, out)


def heads_of(x, heads):
    T, width = x.shape
    W = width // heads
    return Grid((1, heads, T, W), [x[t, h * W + c] for h, t, c in places(heads, T, W)])


def joined(numbers, heads, T, E):
    grid = Grid((heads, T, E), numbers)
    return Grid((T, heads * E), [grid[h, t, e] for t, h, e in places(T, heads, E)])


def block(x, p, o):
    """o: options as a dict; p: parameters by name, None where absent."""
    eps = mpf(o['epsilon'])

    def normed(y, which):
        return norm(y, p[which + '_gain'], p[which + '_bias'], eps, o['rms'])

    def attend(y):
        q = heads_of(matmul(y, p['query_weight'], p['query_bias']), o['H'])
        k = heads_of(matmul(y, p['key_weight'], p['key_bias']), o['G'])
        v = heads_of(matmul(y, p['value_weight'], p['value_bias']), o['G'])
        if o.get('rope'):
            q, k = rope(q, *o['rope'], 0), rope(k, *o['rope'], 0)
        out, _ = attention(q, k, v, lambda b, h, i, j: j <= i or not o['causal'], o.get('scale'),
                           o.get('softcap'), None, o.get('slopes'), lambda b, i: i)
        return matmul(joined(out, o['H'], x.shape[0], v.shape[3]), p['output_weight'],
                      p['output_bias'])

    def ffn(y):
        up = matmul(y, p['up_weight'], p['up_bias'])
        if p['gate_weight']:
            gate = activate(o['activation'], matmul(y, p['gate_weight'], p['gate_bias']))
            up = Grid(up.shape, [a * b for a, b in zip(gate.numbers, up.numbers)])
        else:
            up = activate(o['activation'], up)
        return matmul(up, p['down_weight'], p['down_bias'])

    if o['placement'] == 'post':
        h = normed(add(x, attend(x)), 'norm1')
        return normed(add(h, ffn(h)), 'norm2')
    outer = (lambda y, which: normed(y, which)) if o['placement'] == 'sandwich' else lambda y, _: y
    h = add(x, outer(attend(normed(x, 'norm1')), 'norm1_out'))
    return add(h, outer(ffn(normed(h, 'norm2')), 'norm2_out'))


# ---- writing -----------------------------------------------------------------------------------


def emit(case, part, numbers):
    texts = ['-inf' if x == NINF else mp.nstr(x, 46) for x in numbers]
    print('{"%s", "%s", {' % (case, part))
    for k in range(0, len(texts), 2):
        print('  ' + ' '.join('"%s",' % t for t in texts[k:k + 2]))
    print('}},')


def output_seed(n, k):
    """d_output of number k of output n: streams 90, 91, …"""
    return fraction(90 + n, k)


def golden(case, inputs, f, outputs=('output',), seed=output_seed):
    """inputs: name -> Grid. f(**inputs) -> one list of numbers per output. The gradients are those of
    the sum of all outputs times their seeds."""
    values = f(**inputs)
    for name, numbers in zip(outputs, values):
        emit(case, name, numbers)

    def objective():
        total = mpf(0)
        for n, numbers in enumerate(f(**inputs)):
            total += mp.fsum(seed(n, k) * y for k, y in enumerate(numbers) if y != NINF)
        return total

    for name, grid in inputs.items():
        if grid is None:
            continue
        slopes = []
        for k, x in enumerate(grid.numbers):
            grid.numbers[k] = x + STEP
            above = objective()
            grid.numbers[k] = x - STEP
            below = objective()
            grid.numbers[k] = x
            slopes.append(mp.chop((above - below) / (2 * STEP), tol=mpf(10) ** -60))
        emit(case, 'd_' + name, slopes)


def attention_golden(name, dims, see, **options):
    B, H, G, T, S, D, E = dims
    inputs = dict(query=stream(1, B, H, T, D), key=stream(2, B, G, S, D),
                  value=stream(3, B, G, S, E))
    inputs.update({k: options.pop(k) for k in ('bias', 'sink') if k in options})
    golden('attention.' + name, inputs,
           lambda query, key, value, **more: attention(query, key, value, see, **more, **options),
           ('output', 'log_sum_exp'))


def all_attention():
    small = (2, 2, 1, 2, 3, 3, 2)
    everything = lambda b, h, i, j: True
    attention_golden('plain', small, everything)
    attention_golden('grouped', (1, 4, 2, 2, 3, 2, 1), everything)
    attention_golden('square', (1, 1, 1, 3, 3, 2, 2), lambda b, h, i, j: j <= i)
    length = (2, 3)
    attention_golden('bottom_right', small,
                     lambda b, h, i, j: j < length[b] and j <= length[b] - 2 + i)
    offset = (1, -1)
    attention_golden('at_offset', small, lambda b, h, i, j: j <= i + offset[b])
    attention_golden('window', (1, 1, 1, 4, 5, 2, 1), lambda b, h, i, j: -1 <= j - (i + 1) <= 2)
    attention_golden('visible_and_bias', small,
                     lambda b, h, i, j: fraction(7, b * 6 + i * 3 + j) > -1,
                     bias=stream(4, 1, 2, 1, 3))
    attention_golden('scale_and_softcap', small, everything, scale=mpf(3) / 8, softcap=mpf(5) / 4,
                     bias=stream(4, 1, 1, 2, 3))
    attention_golden('alibi', small, lambda b, h, i, j: j <= i + 1, slopes=(mpf(1) / 2, mpf(1) / 16),
                     position=lambda b, i: i + 1)
    attention_golden('sink', small, everything, sink=stream(5, 2))
    attention_golden('huge_scores', small, everything, bias=stream(4, 2, 1, 2, 3, plus=20000000))
    length_all = (3, 4)

    def see_all(b, h, i, j):
        at = length_all[b] - 2 + i
        return j < length_all[b] and j <= at and at - j <= 2
    attention_golden('all_options', (2, 4, 2, 2, 4, 2, 2), see_all, scale=mpf(3) / 8,
                     softcap=mpf(5) / 4, bias=stream(4, 2, 1, 2, 4), sink=stream(5, 4),
                     slopes=[mpf(n) / 8 for n in (1, 2, 3, 4)],
                     position=lambda b, i: length_all[b] - 2 + i)


def all_layers():
    golden('matmul', dict(left=stream(1, 2, 3), right=stream(2, 3, 2)),
           lambda left, right: [matmul(left, right).numbers])

    def softmax(x):
        out = []
        for r in range(x.shape[0]):
            row = [mp.exp(x[r, c]) for c in range(x.shape[1])]
            out += [y / mp.fsum(row) for y in row]
        return [out]
    golden('softmax', dict(x=stream(1, 2, 4, factor=3)), softmax)
    golden('linear', dict(input=stream(1, 2, 3), weight=stream(2, 3, 2), bias=stream(3, 2)),
           lambda input, weight, bias: [matmul(input, weight, bias).numbers])
    rows = dict(input=stream(1, 2, 4), gain=stream(2, 4), bias=stream(3, 4))
    eps = mpf(1e-5)
    golden('layer_norm', rows, lambda input, gain, bias: [norm(input, gain, bias, eps).numbers])
    del rows['bias']
    golden('rms_norm', rows, lambda input, gain: [norm(input, gain, None, eps, True).numbers])
    for kind in ACTIVATIONS:
        golden(kind, dict(x=stream(6, 9, factor=4)), lambda x: [activate(kind, x).numbers])
    golden('gated', dict(gate=stream(1, 5), up=stream(2, 5)), lambda gate, up: [
        [a * b for a, b in zip(activate('gelu_tanh', gate).numbers, up.numbers)]])
    golden('rope_half', dict(x=stream(1, 2, 2, 6)),
           lambda x: [rope(x, 10000, 6, True, 5).numbers])
    golden('rope_interleaved', dict(x=stream(1, 2, 6)),
           lambda x: [rope(x, 500, 4, False, 1000000).numbers])
    targets, counted = (2, 0, -100), 2

    def cross_entropy(logits):
        loss = mpf(0)
        for n, t in enumerate(targets):
            if t >= 0:
                loss += mp.log(mp.fsum(mp.exp(logits[n, c]) for c in range(4))) - logits[n, t]
        return [[loss / counted]]
    golden('cross_entropy', dict(logits=stream(1, 3, 4, factor=2)), cross_entropy, ('mean',),
           lambda n, k: 1)


NAMES = '''query_weight query_bias key_weight key_bias value_weight value_bias output_weight output_bias
norm1_gain norm1_bias norm2_gain norm2_bias norm1_out_gain norm1_out_bias norm2_out_gain norm2_out_bias
up_weight up_bias gate_weight gate_bias down_weight down_bias'''.split()


def block_golden(name, shapes, options):
    """Parameter n of NAMES is stream 20 + n; those without a shape are absent."""
    inputs = {n: stream(20 + NAMES.index(n), *shape) for n, shape in shapes.items()}

    def f(input, **parameters):
        return [block(input, {n: parameters.get(n) for n in NAMES}, options).numbers]
    golden('block.' + name, dict(input=stream(1, 3, 4), **inputs), f)


def all_blocks():
    plain = dict(query_weight=(4, 4), key_weight=(4, 4), value_weight=(4, 4), output_weight=(4, 4),
                 up_weight=(4, 3), down_weight=(3, 4))
    block_golden('post', plain, dict(H=2, G=2, epsilon=1e-5, rms=False, placement='post',
                                     activation='relu', causal=True))
    block_golden('pre', dict(query_weight=(4, 8), key_weight=(4, 4), value_weight=(4, 1),
                             output_weight=(2, 4), norm1_gain=(4,), norm2_gain=(4,),
                             up_weight=(4, 3), gate_weight=(4, 3), down_weight=(3, 4)),
                 dict(H=2, G=1, epsilon=1e-6, rms=True, placement='pre', activation='silu',
                      causal=True, softcap=mpf(2), rope=(10000, 4, True)))
    biased = dict(query_weight=(4, 3), query_bias=(3,), key_weight=(4, 3), key_bias=(3,),
                  value_weight=(4, 3), value_bias=(3,), output_weight=(3, 4), output_bias=(4,),
                  up_weight=(4, 2), up_bias=(2,), down_weight=(2, 4), down_bias=(4,))
    for side in ('norm1', 'norm2', 'norm1_out', 'norm2_out'):
        biased[side + '_gain'] = biased[side + '_bias'] = (4,)
    block_golden('sandwich', biased,
                 dict(H=3, G=3, epsilon=1e-5, rms=False, placement='sandwich',
                      activation='gelu_tanh', causal=False, scale=mpf(3) / 4,
                      slopes=[mpf(2) ** -4, mpf(2) ** -8, mpf(2) ** -2]))

    def workbook(input, projection1, projection2, output_weight, up_weight, down_weight):
        heads = []
        for p in (projection1, projection2):
            rows = matmul(input, p)
            grid = Grid((1, 1) + rows.shape, rows.numbers)
            heads += attention(grid, grid, grid, lambda b, h, i, j: j <= i)[0]
        eps = mpf(1e-5)
        mixed = matmul(joined(heads, 2, 3, 2), output_weight)
        hidden = norm(add(input, mixed), eps=eps)
        fed = matmul(activate('relu', matmul(hidden, up_weight)), down_weight)
        return [norm(add(hidden, fed), eps=eps).numbers]
    golden('workbook_block',
           dict(input=stream(1, 3, 4), projection1=stream(2, 4, 2), projection2=stream(3, 4, 2),
                output_weight=stream(4, 4, 4), up_weight=stream(5, 4, 3),
                down_weight=stream(6, 3, 4)), workbook)


print('// SPDX-License-Identifier: MIT')
print('// Made by make_oracle_goldens.py; {case, part, numbers row by row, 46 digits each}.')
all_attention()
all_layers()
all_blocks()
