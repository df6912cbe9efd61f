// SPDX-License-Identifier: MIT
// expect: anything

int f() {
#ifdef ATTEST_BAD
  return 2;
#endif
  return 1;
}
