// SPDX-License-Identifier: MIT
// expect: declared

int f() { return not_declared_anywhere; }
