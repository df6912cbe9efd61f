/* SPDX-License-Identifier: MIT */
#pragma once

/*
 * The engine for other languages: plain C (C11), no handles, nothing to free.
 *
 * The same operations, checks and sentences as attest/attention/attention.h and
 * attention_backward.h, whose letters and contracts hold here. Every function returns an
 * attest_status; what went wrong is said by attest_last_error(). No exception leaves these
 * functions, and nothing is printed.
 *
 * A structure that is all zeros means the defaults, so `attest_attention_options o = {0}` and then
 * `o.size = sizeof o` is a call without mask. Structures grow at their end: `size` says which
 * version the caller was built with, and an older caller goes on working.
 */

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef int32_t attest_status;
enum {
  ATTEST_OK = 0,
  ATTEST_ERROR_SHAPE = 1,  /* two shapes, or a shape and a limit, do not fit */
  ATTEST_ERROR_VALUE = 2,  /* a number or an option that is not allowed here */
  ATTEST_ERROR_TYPE = 3,   /* a dtype that is not allowed here */
  ATTEST_ERROR_MEMORY = 4, /* memory that cannot be had */
  ATTEST_ERROR_OTHER = 5   /* anything else; a mistake of this library */
};

enum {
  ATTEST_F32 = 1,
  ATTEST_F64 = 2,
  ATTEST_F16 = 3,
  ATTEST_BF16 = 4,
  ATTEST_BOOL = 5 /* one byte, 0 or 1 */
};

/* Where query 0 stands among the keys; attest/base/mask.h draws them. */
enum {
  ATTEST_CORNER_TOP_LEFT = 0,
  ATTEST_CORNER_SQUARE = 1, /* T = S is required where the future is hidden */
  ATTEST_CORNER_BOTTOM_RIGHT = 2,
  ATTEST_CORNER_AT_OFFSET = 3
};

/* What becomes of a query that may see no key. */
enum { ATTEST_EMPTY_ROW_ERROR = 0, ATTEST_EMPTY_ROW_ZERO = 1, ATTEST_EMPTY_ROW_NAN = 2 };

/* Which results agree bit for bit; attest/linalg/execution.h. */
enum { ATTEST_REPRODUCIBLE_PER_CALL = 0, ATTEST_REPRODUCIBLE_PER_ROW = 1 };

/* NOLINTBEGIN(readability-identifier-naming): C's names, not C++'s. */
/* Somebody's memory that is read. Strides count elements, any sign, 0 repeats. Of both arrays the
 * first `rank` entries count. All zeros means absent. Data may be null where an extent is 0. */
typedef struct attest_view {
  const void* data;
  int32_t dtype;
  int32_t rank;
  int64_t extents[4];
  int64_t strides[4];
} attest_view;

/* The caller's memory that results are written to. */
typedef struct attest_output {
  void* data;
  int32_t dtype;
  int32_t rank;
  int64_t extents[4];
  int64_t strides[4];
} attest_output;

/* A list of whole numbers, or of numbers. Count 0 means absent. */
typedef struct attest_integers {
  const int64_t* data;
  size_t count;
} attest_integers;
typedef struct attest_numbers {
  const double* data;
  size_t count;
} attest_numbers;

typedef struct attest_attention_options {
  size_t size; /* sizeof(attest_attention_options) */

  /* Who may see whom: all that are given hold. */
  int32_t future_hidden; /* 1: causal */
  int32_t corner;
  attest_integers query_offset; /* for ATTEST_CORNER_AT_OFFSET: one, or [B] */
  int32_t has_window_left;
  int32_t has_window_right;
  int64_t window_left;
  int64_t window_right;
  attest_integers key_lengths;  /* one, or [B] */
  attest_integers query_starts; /* packed documents, [documents + 1] */
  attest_integers key_starts;
  attest_integers query_ids; /* documents by name, [T] or [B*T] */
  attest_integers key_ids;   /* [S] or [B*S] */
  attest_view visible;       /* ATTEST_BOOL, rank 4, broadcasts to [B, H, T, S]; 1: may see */

  attest_view bias; /* rank 4, broadcasts; f32 or bf16, f64 for f64 inputs */
  int32_t has_scale;
  int32_t has_softcap;
  double scale; /* without: 1 / sqrt(D) */
  double softcap;
  attest_numbers alibi_slopes; /* [H] */
  attest_numbers sink;         /* [H] */
  double dropout_rate;
  uint64_t dropout_seed;
  int32_t empty_row;

  /* How it is carried out. */
  int32_t reproducible;
  const char* isa; /* "avx2", ...; null: the best there is, or ATTEST_ISA */
} attest_attention_options;

/* query [B, H, T, D], key [B, G, S, D], value [B, G, S, E], all of one dtype. */
typedef struct attest_attention_inputs {
  attest_view query;
  attest_view key;
  attest_view value;
} attest_attention_inputs;

/* output [B, H, T, E] of the inputs' dtype; log_sum_exp [B, H, T], f32 (f64 for f64), or absent. */
typedef struct attest_attention_outputs {
  attest_output output;
  attest_output log_sum_exp;
} attest_attention_outputs;

/* What the forward call left, and what flows back. An absent d_log_sum_exp is zero. */
typedef struct attest_attention_backward_inputs {
  attest_view output;
  attest_view log_sum_exp;
  attest_view d_output;
  attest_view d_log_sum_exp;
} attest_attention_backward_inputs;

/* Absent ones are not written. d_bias has the bias's own shape, d_sink [H]; f32 (f64 for f64). */
typedef struct attest_attention_gradients {
  attest_output d_query;
  attest_output d_key;
  attest_output d_value;
  attest_output d_bias;
  attest_output d_sink;
} attest_attention_gradients;
/* NOLINTEND(readability-identifier-naming) */

/* Attention; overwrites the outputs. `options` may be null: no mask, the default scale.
 * After a failure the outputs are unspecified. */
attest_status attest_attention_forward(const attest_attention_outputs* outputs,
                                       const attest_attention_inputs* inputs,
                                       const attest_attention_options* options);

/* Its gradients, with the options of the forward call; overwrites them. */
attest_status attest_attention_backward(const attest_attention_gradients* gradients,
                                        const attest_attention_inputs* inputs,
                                        const attest_attention_backward_inputs* results,
                                        const attest_attention_options* options);

/* One sentence about the latest call that failed on this thread, and its stable id
 * ("shape-mismatch"); empty texts if none did. Both stay good until the next failure on this
 * thread. */
const char* attest_last_error(void);
const char* attest_last_error_id(void);

#ifdef __cplusplus
}
#endif
