// SPDX-License-Identifier: MIT

int f() { return 1; }
