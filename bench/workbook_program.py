# SPDX-License-Identifier: MIT
"""Times the workbook's own attention (Python 3.12) at the sizes of exact_attention_bench.

    python3.12 bench/workbook_program.py

The functions are the workbook's, as quoted in tests/golden/make_workbook_cases.py.
"""
import pathlib
import random
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "tests" / "golden"))
from make_workbook_cases import attention  # noqa: E402

random.seed(1)
for n in (16, 32, 64):  # 64 is the workbook's limit
    rows = [[[random.gauss(0, 1) for _ in range(64)] for _ in range(n)] for _ in range(3)]
    best = float("inf")
    for _ in range(5):
        begin = time.perf_counter()
        attention(*rows)
        best = min(best, time.perf_counter() - begin)
    print(f"workbook attention {n:4} x {n} x 64: {best * 1e3:8.2f} ms, {best * 1e9 / n / n:8.0f} ns a pair")
