// SPDX-License-Identifier: MIT
// expect: read-only

int f() {
#ifdef ATTEST_BAD
  return not_declared_anywhere;
#endif
  return 1;
}
