# SPDX-License-Identifier: MIT
"""Records what the workbook's own program computes, for tests/lab/workbook_cases_golden_test.cpp.

    python3.12 tests/golden/make_workbook_cases.py > tests/golden/workbook_cases.jsonl

The functions between the two rulers are the workbook's, quoted as the specification; nothing in
them is ours. One JSON object a line: the inputs, and "expect" or "error". Needs Python 3.12 alone.
"""
import json
import random

# ---- quoted from the workbook: attention.py and block.py ------------------------------------------
import math


def matrix(value, name):
    if type(value) not in (list, tuple) or not 1 <= len(value) <= 64:
        raise ValueError(f"{name}: expected 1 to 64 rows")
    if any(type(row) not in (list, tuple) for row in value):
        raise ValueError(f"{name}: expected rows")
    width = len(value[0])
    if not 1 <= width <= 64 or any(len(row) != width for row in value):
        raise ValueError(f"{name}: expected a non-empty rectangle")
    if any(type(x) not in (int, float) or abs(x) > 1e6
           or not math.isfinite(x) for row in value for x in row):
        raise ValueError(f"{name}: expected bounded finite numbers")
    return [[float(x) for x in row] for row in value]

def matmul(left, right):
    a, b = matrix(left, "left"), matrix(right, "right")
    if len(a[0]) != len(b):
        raise ValueError("Incompatible multiplication shapes")
    columns = list(zip(*b))
    return [[math.fsum(x*y for x, y in zip(row, col))
             for col in columns] for row in a]

def softmax(scores):
    if not scores or any(math.isnan(x) or x == math.inf for x in scores):
        raise ValueError("Invalid scores")
    peak = max(scores)
    if peak == -math.inf:
        raise ValueError("No visible key in this row")
    values = [math.exp(x - peak) for x in scores]
    total = math.fsum(values)
    return [x / total for x in values]

def attention(query, key, value, *, causal=False, allow=None):
    q, k, v = (matrix(x, name) for x, name in
               ((query, "query"), (key, "key"), (value, "value")))
    nq, nk, dk, dv = len(q), len(k), len(q[0]), len(v[0])
    if len(k[0]) != dk or len(v) != nk:
        raise ValueError("Q/K widths and K/V row counts must agree")
    if type(causal) is not bool or (causal and nq != nk):
        raise ValueError("Causal mode requires equal sequence lengths")
    if allow is None:
        allow = [[True] * nk for _ in range(nq)]
    if (type(allow) not in (list, tuple) or len(allow) != nq
            or any(type(row) not in (list, tuple) or len(row) != nk
                   or any(type(x) is not bool for x in row)
                   for row in allow)):
        raise ValueError("Expected a boolean allow matrix")
    weights, output = [], []
    for i, row in enumerate(q):
        scores = [math.fsum(a*b for a, b in zip(row, col)) / math.sqrt(dk)
                  if allow[i][j] and (not causal or j <= i) else -math.inf
                  for j, col in enumerate(k)]
        probs = softmax(scores)
        weights.append(probs)
        output.append([math.fsum(probs[j] * v[j][d] for j in range(nk))
                       for d in range(dv)])
    return output, weights

P1 = [[1, 0], [0, 1], [0, 0], [0, 0]]
P2 = [[0, 0], [0, 0], [1, 0], [0, 1]]
WO = [[1, 0, 0, 0], [0, 1, 0, 0],
      [0, 0, 1, 0], [0, 0, 0, 1]]
W1 = [[1, -1, 0, 0], [0, 1, -1, 0],
      [0, 0, 1, -1], [-1, 0, 0, 1]]
W2 = [[.5, 0, 0, 0], [0, .5, 0, 0],
      [0, 0, .5, 0], [0, 0, 0, .5]]

def normalise(rows):
    result = []
    for row in rows:
        mean = math.fsum(row) / len(row)
        variance = math.fsum((x-mean)**2 for x in row) / len(row)
        result.append([(x-mean) / math.sqrt(variance + 1e-5) for x in row])
    return result

def add(a, b):
    return [[x+y for x, y in zip(ra, rb)] for ra, rb in zip(a, b)]

def transformer_block(rows, *, causal=True):
    x = matrix(rows, "block input")
    if len(x[0]) != 4:
        raise ValueError("This fixed block expects four features")
    heads, maps = [], []
    for projection in (P1, P2):
        projected = matmul(x, projection)
        head, weights = attention(projected, projected, projected,
                                  causal=causal)
        heads.append(head)
        maps.append(weights)
    joined = [a+b for a, b in zip(*heads)]
    mixed = matmul(joined, WO)
    hidden = normalise(add(x, mixed))
    expanded = matmul(hidden, W1)
    activated = [[max(0.0, x) for x in row] for row in expanded]
    feed_forward = matmul(activated, W2)
    return normalise(add(hidden, feed_forward)), maps
# ---- end of the quotation -------------------------------------------------------------------------

SEED = 20481
CASES_OF_EACH_OP = 60
HOSTILE = [0.0, -0.0, 1e6, -1e6, 1e-300, 5e-324, 1 / 3, 999999.9999999999, 0.1, -0.7, 1e-8]
KINDS = ("whole", "bell", "wide", "hostile", "short")


def number(rng, kind):
    if kind == "whole":
        return rng.randint(-9, 9)
    if kind == "bell":
        return rng.gauss(0, 1)
    if kind == "wide":
        return rng.uniform(-1, 1) * 10.0 ** rng.randint(-12, 5)
    if kind == "hostile":
        return rng.choice(HOSTILE)
    return round(rng.gauss(0, 2), 2)


def rectangle(rng, rows, columns, kind):
    return [[number(rng, kind) for _ in range(columns)] for _ in range(rows)]


def matmul_case(rng, kind):
    rows, inner, columns = rng.randint(1, 4), rng.randint(1, 6), rng.randint(1, 4)
    below = inner if rng.random() > 0.15 else inner + 1
    case = {"left": rectangle(rng, rows, inner, kind),
            "right": rectangle(rng, below, columns, kind)}
    if rng.random() < 0.05:
        case["left"][0][0] = 1000000.0000000001
    return case, lambda: {"product": matmul(case["left"], case["right"])}


def softmax_case(rng, kind):
    scores = [number(rng, kind) if rng.random() > 0.2 else None for _ in range(rng.randint(1, 12))]
    case = {"scores": scores}
    floats = [-math.inf if x is None else float(x) for x in scores]
    return case, lambda: {"weights": softmax(floats)}


def attention_case(rng, kind):
    queries, keys = rng.randint(1, 4), rng.randint(1, 4)
    causal = rng.random() < 0.4
    if causal and rng.random() < 0.9:
        keys = queries
    width, value_width = rng.randint(1, 3), rng.randint(1, 3)
    allow = None
    if rng.random() < 0.5:
        allow = [[rng.random() < 0.75 for _ in range(keys)] for _ in range(queries)]
    case = {"query": rectangle(rng, queries, width, kind),
            "key": rectangle(rng, keys, width + (rng.random() < 0.03), kind),
            "value": rectangle(rng, keys, value_width, kind), "causal": causal, "allow": allow}

    def run():
        output, weights = attention(case["query"], case["key"], case["value"], causal=causal,
                                    allow=allow)
        return {"output": output, "weights": weights}
    return case, run


def block_case(rng, kind):
    width = 4 if rng.random() > 0.05 else 3
    case = {"rows": rectangle(rng, rng.randint(1, 4), width, kind), "causal": rng.random() < 0.7}

    def run():
        output, maps = transformer_block(case["rows"], causal=case["causal"])
        return {"output": output, "maps": maps}
    return case, run


def main():
    rng = random.Random(SEED)
    makers = {"matmul": matmul_case, "softmax": softmax_case, "attention": attention_case,
              "block": block_case}
    for op, make in makers.items():
        for n in range(CASES_OF_EACH_OP):
            inputs, run = make(rng, KINDS[n % len(KINDS)])
            case = {"op": op, **inputs}
            try:
                case["expect"] = run()
            except ValueError:
                case["error"] = True
            print(json.dumps(case, allow_nan=False, separators=(",", ":")))


if __name__ == "__main__":
    main()
