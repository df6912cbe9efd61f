# SPDX-License-Identifier: MIT
"""Every stage of the fixtures in tests/support/fixtures.h, from 40-digit arithmetic.

    python3 tests/golden/make_fixture_goldens.py > tests/golden/fixtures.json

Needs Python 3 and mpmath (Debian: python3-mpmath). Inputs are exact binary numbers; each result is
the double nearest to the 40-digit value. Infinities are written "-inf".
"""
import json
import mpmath as mp

mp.mp.dps = 40
MINUS_INFINITY = mp.mpf("-inf")

ASYM = dict(
    query=([1, 1, 3, 2], [1, 2, 0, -1, 2, 0.5]),
    key=([1, 1, 3, 2], [0.5, 1, 1, -1, 0, 2]),
    value=([1, 1, 3, 5], [1, -2, 3, 0.5, 7, 4, 5, -6, 1.5, -8, -9, 10, 11, -2.5, 12]),
    visible=([1, 1, 3, 3], [1, 1, 1, 1, 0, 1, 0, 1, 1]))
CALLS = dict(
    asym=ASYM,
    asym_causal={**ASYM, "causal": True, "visible": ([1, 1, 3, 3], [1, 1, 1, 1, 1, 0, 1, 1, 0])},
    cross=dict(
        query=([1, 1, 2, 3], [1, -0.5, 2, 0.25, 3, -1]),
        key=([1, 1, 4, 3], [1, 0, 0.5, -1, 2, 0, 0.5, 0.5, 1, 2, -1, -0.5]),
        value=([1, 1, 4, 2], [1, -10, 2, 20, -3, 30, 5, -7])),
    cache=dict(
        query=([1, 1, 1, 3], [1.5, -1, 0.5]),
        key=([1, 1, 6, 3], [1, 0, 2, 0, -1, 1, 0.5, 1, 0, -1, -2, 0.5, 3, 1, 1, 0, 4, -2]),
        value=([1, 1, 6, 2], [1, 2, -3, 4, 5, -6, 7, 8, 100, 200, -300, 400]),
        causal=True, offset=[3]),
    pad=dict(
        query=([3, 1, 2, 3], [1, 2, -1, 0.5, -1, 2, 2, 0, 1, -1, 1, 0.5, 1, -2, 1.5, 0, 3, 1]),
        key=([3, 1, 4, 3], [1, 0, 1, 0, 2, -1, -1, 1, 0.5, 2, 1, 0,
                            0.5, 1, 1, 9, 9, 9, -9, 9, 9, 9, -9, 9,
                            1, -1, 2, 0, 1, 0.5, 7, 7, -7, -7, 7, 7]),
        value=([3, 1, 4, 2], [1, 5, 2, -6, 3, 7, 4, -8, 10, 50, 99, 99, 98, 98, 97, 97,
                              -1, 0.5, 6, 2.5, 96, 96, 95, 95]),
        causal=True, lengths=[4, 2, 3], offset=[2, 0, 1]),
    huge=dict(
        query=([1, 1, 2, 2], [100, 0, -100, 1]),
        key=([1, 1, 3, 2], [100, 1, -100, 2, 99.9921875, 3]),
        value=([1, 1, 3, 3], [1, 2, 3, 40, 50, 60, 700, 800, 900]), scale=1),
    empty=dict(
        query=([1, 1, 3, 2], [1, 2, 3, -1, 0.5, 1]),
        key=([1, 1, 2, 2], [1, -1, 0.5, 2]),
        value=([1, 1, 2, 3], [1, 2, 3, -4, 5, -6]),
        visible=([1, 1, 3, 2], [1, 0, 0, 0, 1, 1])),
    group=dict(
        query=([1, 4, 2, 2], [1, 0.5, -1, 2, 2, -1, 0.5, 0.5, -2, 1, 1, 1.5, 3, 0, 0, -3]),
        key=([1, 2, 3, 2], [1, 2, -1, 0.5, 0.5, -1, 2, 1, 0, 1.5, -0.5, 2.5]),
        value=([1, 2, 3, 4], [1, 10, 100, 3, 2, -20, 200, -5, 3, 30, -300, 7,
                              -4, 40, 400, 11, 5, -50, 500, 13, 6, 60, -600, -17])),
    options=dict(
        query=([1, 2, 3, 3], [1, 2, 0, 0.5, -1, 1, 2, 0, -1, 1, -1, 0.5, -2, 1, 1, 0, 2, 1]),
        key=([1, 1, 4, 3], [1, 0, 0.5, 0, 1, -1, 2, -1, 0, 0.5, 0.5, 1]),
        value=([1, 1, 4, 2], [1, 2, -3, 4, 5, -6, 7, 8]),
        bias=([1, 1, 3, 4], [0.5, -1, 0, 2, 1, 0, -0.5, 0.25, -2, 1.5, 1, 0]),
        scale=0.75, softcap=1.5, alibi=[0.25, 0.0625], sink=[0.5, -1], causal=True, offset=[1],
        left=2))

ROWS = [[1, -0.5, 2, 0.25], [-1, 1.5, 0.5, -2], [0.75, 2, -1.25, 1], [-0.5, -1, 1.5, 3],
        [2.5, 0.5, -0.75, -1.5]]
P1 = [[0.5, -1], [1, 0.25], [-0.75, 0.5], [0.25, 1.5]]
WO = [[0.5, 1, -0.25, 0.75], [-1, 0.5, 1.5, 0.25], [0.25, -0.75, 1, 0.5], [1.25, 0.5, -0.5, -1]]
W2 = [[0.5, 1, -0.5, 0.25], [-0.25, 0.75, 1, -1], [1.5, -0.5, 0.25, 0.5], [0.5, 0.25, -1, 1.25]]
BLOCKS = dict(
    block=dict(
        rows=ROWS, P1=P1, P2=[[-1, 0.5], [0.25, 1], [1.25, -0.5], [0.5, 0.75]], WO=WO,
        W1=[[1, -0.5, 0.25, 0.75], [0.5, 1.5, -1, -0.25], [-0.75, 0.25, 1, 0.5],
            [0.5, -1.25, 0.75, 1]],
        W2=W2, epsilon=0.0625, causal=True),
    wide_block=dict(
        rows=ROWS, P1=P1,
        P2=[[-1, 0.5, 0.25], [0.25, 1, -0.5], [1.25, -0.5, 1], [0.5, 0.75, -1.5]],
        WO=WO + [[-0.5, 1, 0.75, 0.25]],
        W1=[[1, -0.5, 0.25, 0.75, 2, -1], [0.5, 1.5, -1, -0.25, 1, 0.5],
            [-0.75, 0.25, 1, 0.5, -1, 2], [0.5, -1.25, 0.75, 1, 0.25, -0.5]],
        W2=W2 + [[-1, 0.5, 0.25, 1], [0.75, -1, 1, 0.5]], epsilon=1e-5, causal=False))
NORM_ROWS = [[1, 0, 0, 0], [3, -1, 0.5, 2], [5, 5, 5, 5]]


class Tensor:
    def __init__(self, shape_and_values):
        self.shape, values = shape_and_values
        self.values = [mp.mpf(x) for x in values]

    def __call__(self, *index):
        place = 0
        for extent, n in zip(self.shape, index):
            place = place * extent + (0 if extent == 1 else n)
        return self.values[place]


def visible(call, b, h, i, j):
    offsets = call.get("offset", [0])
    position = i + (offsets[0] if len(offsets) == 1 else offsets[b])
    if call.get("causal") and j > position:
        return False
    if "left" in call and position - j > call["left"]:
        return False
    if "lengths" in call and j >= call["lengths"][b]:
        return False
    return "visible" not in call or bool(Tensor(call["visible"])(b, h, i, j))


def attention_row(call, b, h, i):
    query, key, value = (Tensor(call[name]) for name in ("query", "key", "value"))
    heads, groups, keys = query.shape[1], key.shape[1], key.shape[2]
    width, value_width = query.shape[3], value.shape[3]
    g = h // (heads // groups)
    offsets = call.get("offset", [0])
    position = i + (offsets[0] if len(offsets) == 1 else offsets[b])
    row = {name: [] for name in ("products", "dot", "scaled", "capped", "biased", "masked")}
    for j in range(keys):
        products = [query(b, h, i, d) * key(b, g, j, d) for d in range(width)]
        dot = mp.fsum(products)
        scaled = dot * call["scale"] if "scale" in call else dot / mp.sqrt(width)
        cap = call.get("softcap")
        capped = cap * mp.tanh(scaled / cap) if cap else scaled
        biased = capped
        if "bias" in call:
            biased += Tensor(call["bias"])(b, h, i, j)
        if "alibi" in call:
            biased -= mp.mpf(call["alibi"][h]) * abs(position - j)
        row["products"] += products
        for name, x in (("dot", dot), ("scaled", scaled), ("capped", capped), ("biased", biased)):
            row[name].append(x)
        row["masked"].append(biased if visible(call, b, h, i, j) else MINUS_INFINITY)
    live = [x for x in row["masked"] if x != MINUS_INFINITY]
    row["empty"] = not live
    if not live:
        row["weights"] = [mp.mpf(0)] * keys
        row["output"] = [mp.mpf(0)] * value_width
        row["log_sum_exp"] = [MINUS_INFINITY]
        return row
    sink = mp.mpf(call["sink"][h]) if "sink" in call else None
    peak = max(live + ([sink] if sink is not None else []))
    row["peak"] = [peak]
    row["minus_peak"] = [x - peak for x in row["masked"]]
    row["exp"] = [mp.exp(x) if x != MINUS_INFINITY else mp.mpf(0) for x in row["minus_peak"]]
    row["sink_exp"] = [mp.exp(sink - peak) if sink is not None else mp.mpf(0)]
    row["sum"] = [mp.fsum(row["exp"]) + row["sink_exp"][0]]
    row["weights"] = [x / row["sum"][0] for x in row["exp"]]
    row["mix"] = [row["weights"][j] * value(b, g, j, e)
                  for j in range(keys) for e in range(value_width)]
    row["output"] = [mp.fsum(row["mix"][j * value_width + e] for j in range(keys))
                     for e in range(value_width)]
    row["log_sum_exp"] = [peak + mp.log(row["sum"][0])]
    return row


def matmul(a, b):
    return [[mp.fsum(mp.mpf(x) * mp.mpf(y) for x, y in zip(row, column)) for column in zip(*b)]
            for row in a]


def normalise(rows, epsilon, name, stages):
    means = [mp.fsum(row) / len(row) for row in rows]
    variances = [mp.fsum((x - m) ** 2 for x in row) / len(row) for row, m in zip(rows, means)]
    stages[name + ".mean"] = [means]
    stages[name + ".variance"] = [variances]
    stages[name] = [[(x - m) / mp.sqrt(v + mp.mpf(epsilon)) for x in row]
                    for row, m, v in zip(rows, means, variances)]
    return stages[name]


def block(case):
    stages = {}
    x = [[mp.mpf(v) for v in row] for row in case["rows"]]
    joined = [[] for _ in x]
    for head, projection in (("h0.", case["P1"]), ("h1.", case["P2"])):
        y = stages[head + "projection"] = matmul(x, projection)
        weights = []
        for i, query in enumerate(y):
            seen = range(i + 1) if case["causal"] else range(len(y))
            terms = {j: mp.exp(mp.fsum(a * b for a, b in zip(query, y[j])) / mp.sqrt(len(query)))
                     for j in seen}
            total = mp.fsum(terms.values())
            weights.append([terms[j] / total if j in terms else mp.mpf(0) for j in range(len(y))])
        stages[head + "weights"] = weights
        stages[head + "output"] = matmul(weights, y)
        joined = [a + b for a, b in zip(joined, stages[head + "output"])]
    stages["concat"] = joined
    stages["output_projection"] = matmul(joined, case["WO"])
    stages["residual1"] = [[a + b for a, b in zip(*rows)] for rows in zip(x, stages["output_projection"])]
    hidden = normalise(stages["residual1"], case["epsilon"], "norm1", stages)
    stages["ffn.up"] = matmul(hidden, case["W1"])
    stages["ffn.relu"] = [[max(v, mp.mpf(0)) for v in row] for row in stages["ffn.up"]]
    stages["ffn.down"] = matmul(stages["ffn.relu"], case["W2"])
    stages["residual2"] = [[a + b for a, b in zip(*rows)]
                           for rows in zip(hidden, stages["ffn.down"])]
    normalise(stages["residual2"], case["epsilon"], "norm2", stages)
    return stages


def number(x):
    return "-inf" if x == MINUS_INFINITY else float(x)


def flat(rows):
    return [number(x) for row in rows for x in row]


def main():
    calls = {}
    for name, call in CALLS.items():
        batches, heads, queries, _ = call["query"][0]
        rows = []
        for n in range(batches * heads * queries):
            place = (n // (heads * queries), n // queries % heads, n % queries)
            row = attention_row(call, *place)
            rows.append({stage: x if stage == "empty" else [number(v) for v in x]
                         for stage, x in row.items()})
        calls[name] = {"query": call["query"][1], "key": call["key"][1],
                       "value": call["value"][1], "rows": rows}
    blocks = {}
    for name, case in BLOCKS.items():
        inputs = {k: flat(case[k]) for k in ("rows", "P1", "P2", "WO", "W1", "W2")}
        blocks[name] = {**inputs, "stages": {k: flat(v) for k, v in block(case).items()}}
    norms = []
    for epsilon in (1e-5, 1.0):
        stages = {}
        normalise([[mp.mpf(v) for v in row] for row in NORM_ROWS], epsilon, "values", stages)
        norms.append({"epsilon": epsilon, **{k: flat(v) for k, v in stages.items()}})
    print(json.dumps({"calls": calls, "blocks": blocks, "norm_rows": flat(NORM_ROWS),
                      "norms": norms}, indent=0, separators=(",", ":")))


if __name__ == "__main__":
    main()
