/* SPDX-License-Identifier: MIT */
/* The engine from C: a forward and a backward call, and an error, through the one C header. */

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "attest/attention/attest_c.h"

static attest_view view_of(const float* data, int64_t rows, int64_t columns) {
  const attest_view out = {
      data, ATTEST_F32, 4, {1, 1, rows, columns}, {rows * columns, rows * columns, columns, 1}};
  return out;
}

static attest_output output_of(float* data, int64_t rows, int64_t columns) {
  const attest_output out = {
      data, ATTEST_F32, 4, {1, 1, rows, columns}, {rows * columns, rows * columns, columns, 1}};
  return out;
}

/* Fails, and says where. */
static int check(int good, const char* what) {
  if (!good) printf("wrong: %s; last error: %s\n", what, attest_last_error());
  return good;
}

int main(void) {
  const float query[4] = {1, 0, 0, 1};  /* [T, D], also the keys */
  const float value[4] = {8, 0, 0, 16}; /* [S, E] */
  float output[4] = {0}, log_sum_exp[2] = {0}, d_value[4] = {0};
  const float d_output[4] = {1, 1, 0, 0};

  attest_attention_inputs inputs = {view_of(query, 2, 2), view_of(query, 2, 2),
                                    view_of(value, 2, 2)};
  attest_attention_outputs outputs = {output_of(output, 2, 2),
                                      {log_sum_exp, ATTEST_F32, 3, {1, 1, 2}, {2, 2, 1}}};
  attest_attention_options options = {0};
  options.size = sizeof options;
  options.future_hidden = 1;
  options.corner = ATTEST_CORNER_SQUARE;

  if (!check(attest_attention_forward(&outputs, &inputs, &options) == ATTEST_OK, "forward"))
    return 1;
  /* The first query sees its own key alone: weight 1, and every number is exact. */
  if (!check(output[0] == 8 && output[1] == 0, "row 0")) return 1;
  /* The second sees both, with scores 0 and 1/sqrt(2). */
  const double first = 1 / (1 + exp(1 / sqrt(2.0)));
  if (!check(fabs(output[2] - 8 * first) < 1e-5 && fabs(output[3] - 16 * (1 - first)) < 1e-5,
             "row 1")) {
    return 1;
  }

  attest_attention_backward_inputs results;
  memset(&results, 0, sizeof results);
  results.output = view_of(output, 2, 2);
  results.log_sum_exp = (attest_view){log_sum_exp, ATTEST_F32, 3, {1, 1, 2}, {2, 2, 1}};
  results.d_output = view_of(d_output, 2, 2);
  attest_attention_gradients gradients;
  memset(&gradients, 0, sizeof gradients);
  gradients.d_value = output_of(d_value, 2, 2);
  if (!check(attest_attention_backward(&gradients, &inputs, &results, &options) == ATTEST_OK,
             "backward")) {
    return 1;
  }
  /* Row 0 reads key 0 alone, with weight 1; row 1 sends nothing back. */
  if (!check(fabsf(d_value[0] - 1) < 1e-6F && d_value[2] == 0, "d_value")) return 1;

  inputs.value.extents[2] = 1;
  if (!check(attest_attention_forward(&outputs, &inputs, &options) == ATTEST_ERROR_SHAPE,
             "a shape error")) {
    return 1;
  }
  return strcmp(attest_last_error_id(), "shape-mismatch") == 0 ? 0 : 1;
}
