#!/usr/bin/env node
// SPDX-License-Identifier: MIT
// ONNX Runtime on its CPU provider: com.microsoft MultiHeadAttention and GroupQueryAttention, and
// Attention of opset 23 and 24; a window where GroupQueryAttention has one; float16 for bf16 rows,
// as its CPU provider has no bfloat16 kernels. One line for each that does the row. Needs the npm
// package onnxruntime-node, found as Node finds modules, or in the folder that ORT_DIR names.
'use strict';

const { attribute, model, node } = require('../onnx_graph.js');

// ---- the row
const words = process.argv.slice(2);
if (words.length !== 11) {
  console.error('usage: onnxruntime.js SHAPE B H G T S D MASK DTYPE PASS THREADS');
  process.exit(2);
}
const shape = words[0];
const [B, H, G, T, S, D] = words.slice(1, 7).map(Number);
const [mask, dtype, pass] = words.slice(7, 10);
const threads = Number(words[10]);
const window_ = mask === 'window512' && T === S;
const causal = window_ || (mask === 'causal' && T === S);
const half = dtype === 'bf16';
const kind = half ? 'float16' : 'float32';
if (pass !== 'fwd' || !(mask === 'full' || causal)) process.exit(0);

let ort;
try {
  ort = require(process.env.ORT_DIR || 'onnxruntime-node');
} catch (error) {
  process.exit(0);  // not installed: not compared
}

const float_ = new Float32Array(1), bits_ = new Uint32Array(float_.buffer);
/// To binary16, to nearest even; for numbers of ordinary size.
const narrowed = (x) => {
  float_[0] = x;
  const sign = (bits_[0] >>> 16) & 0x8000, magnitude = bits_[0] & 0x7fffffff;
  if (magnitude < 0x38800000) {  // subnormal: multiples of 2^-24, and ties go to even
    const n = Math.abs(x) * 2 ** 24, floor = Math.floor(n), rest = n - floor;
    return sign | (floor + (rest > 0.5 || (rest === 0.5 && floor & 1) ? 1 : 0));
  }
  return sign | ((magnitude - 0x38000000 + 0xfff + ((magnitude >>> 13) & 1)) >>> 13);
};
const widened = (h) => {
  const exponent = (h >> 10) & 31, fraction = h & 1023;
  return (h & 0x8000 ? -1 : 1) * (exponent ? (1 + fraction / 1024) * 2 ** (exponent - 15) : fraction * 2 ** -24);
};
const numbers = (count, seed) => {
  let state = (seed * 2654435761) | 1;
  return Float32Array.from({ length: count }, () => {
    state ^= state << 13; state ^= state >>> 17; state ^= state << 5;
    return ((state >>> 0) / 4294967296 - 0.5) * 3.4641016;
  });
};

/// Inputs, nodes and output of one way to compute the row; null if it cannot. Small calls are chained
/// so that the call from JavaScript is not what is measured.
function graph(op, chain) {
  const tokens = op === 'MHA' || op === 'GQA';  // [B, T, H·D]; otherwise [B, H, T, D]
  const dims = (heads, length) => (tokens ? [B, length, heads * D] : [B, heads, length, D]);
  const inputs = [['q', kind, dims(H, T)], ['k', kind, dims(G, S)], ['v', kind, dims(G, S)]];
  const feeds = {};
  inputs.forEach(([name, type, shape_], n) => {
    const data = numbers(shape_.reduce((a, b) => a * b), n + 1);
    feeds[name] = new ort.Tensor(type, half ? Uint16Array.from(data, narrowed) : data, shape_);
  });
  const nodes = [];
  for (let n = 0; n < chain; ++n) {
    const from = n ? `o${n - 1}` : 'q';
    if (op === 'MHA') {
      if (H !== G || window_) return null;
      nodes.push(node('MultiHeadAttention', 'com.microsoft', [from, 'k', 'v'], [`o${n}`],
        [attribute.integer('num_heads', H), attribute.integer('unidirectional', causal ? 1 : 0)]));
    } else if (op === 'GQA') {
      if (!causal) return null;  // it is always causal, and takes a longer past only as a cache
      nodes.push(node('GroupQueryAttention', 'com.microsoft', [from, 'k', 'v', '', '', 'last', 'total'],
        [`o${n}`, `pk${n}`, `pv${n}`],
        [attribute.integer('num_heads', H), attribute.integer('kv_num_heads', G),
          attribute.integer('local_window_size', window_ ? 513 : -1)]));
    } else {
      if (window_) return null;
      nodes.push(node('Attention', '', [from, 'k', 'v'], [`o${n}`],
        [attribute.integer('is_causal', causal ? 1 : 0), attribute.real('scale', 1 / Math.sqrt(D))]));
    }
  }
  if (op === 'GQA') {
    inputs.push(['last', 'int32', [B]], ['total', 'int32', [1]]);
    feeds.last = new ort.Tensor('int32', new Int32Array(B).fill(S - 1), [B]);
    feeds.total = new ort.Tensor('int32', Int32Array.of(S), [1]);
  }
  const opset = op === 'Attention24' ? 24 : op === 'Attention23' ? 23 : 21;
  const bytes = model(nodes, inputs, [[`o${chain - 1}`, kind, dims(H, T)]], opset);
  const place = (heads, length) => (h, i, d) => (tokens ? (i * heads + h) * D + d : (h * length + i) * D + d);
  return { bytes, feeds, query: place(H, T), key: place(G, S) };
}

function maxError(g, output) {  // of the first batch
  const at = (tensor, n) => (half ? widened(tensor.data[n]) : tensor.data[n]);
  const { q, k, v } = g.feeds;
  let worst = 0;
  for (const [h, i] of [[0, T - 1], [H - 1, T >> 1], [H >> 1, T >> 2]]) {
    const kv = Math.floor(h / (H / G)), first = window_ ? Math.max(0, i - 512) : 0, weights = [];
    for (let j = first; j < (causal ? i + 1 : S); ++j) {
      let dot = 0;
      for (let d = 0; d < D; ++d) dot += at(q, g.query(h, i, d)) * at(k, g.key(kv, j, d));
      weights.push(dot / Math.sqrt(D));
    }
    const most = weights.reduce((a, b) => Math.max(a, b));
    let sum = 0;
    for (let n = 0; n < weights.length; ++n) sum += weights[n] = Math.exp(weights[n] - most);
    for (let d = 0; d < D; ++d) {
      let mixed = 0;
      for (let n = 0; n < weights.length; ++n) mixed += weights[n] * at(v, g.key(kv, first + n, d));
      const error = Math.abs(mixed / sum - at(output, g.query(h, i, d)));
      if (!(error <= worst)) worst = error;  // a NaN stays
    }
  }
  return worst;
}

const best = Number(process.env.ATTEST_BEST_MS || Infinity);  // of the row so far, as the bench tells
async function measure(op) {
  const work = B * H * T * S * D;
  const chain = work < 1e5 ? 64 : work < 1e7 ? 4 : 1;
  const options = { intraOpNumThreads: threads, interOpNumThreads: 1, executionMode: 'sequential',
    graphOptimizationLevel: 'all', logSeverityLevel: 4,
    extra: { session: { set_denormal_as_zero: '1' } } };  // its masked scores become subnormal
  const once = graph(op, 1);
  if (once === null) return;
  const checked = await ort.InferenceSession.create(once.bytes, options);
  const error = maxError(once, (await checked.run(once.feeds)).o0);
  await checked.release();
  const g = graph(op, chain);
  const session = await ort.InferenceSession.create(g.bytes, options);
  const fetches = [`o${chain - 1}`];
  let calls = 1;
  const sample = async () => {
    const begin = performance.now();
    for (let n = 0; n < calls; ++n) await session.run(g.feeds, fetches);
    return performance.now() - begin;
  };
  await sample();
  let last = await sample();
  for (; last < 2; last = await sample()) calls *= 2;
  const times = [last / calls / chain];
  for (let total = last; times.length < 7 || (total < 100 && times.length < 31);) {
    if (times.length >= 3 && Math.min(...times) > 3 * best) break;  // it cannot become the best
    const took = await sample();
    total += took;
    times.push(took / calls / chain);
  }
  times.sort((a, b) => a - b);
  let pairs = 0;
  for (let i = 0; i < T; ++i) pairs += window_ ? Math.min(i, 512) + 1 : causal ? i + 1 : S;
  const median = times[times.length >> 1];
  console.log(`onnxruntime_${op}${half ? '_f16' : ''},${shape},fwd,${dtype},${mask},${threads},${median.toPrecision(6)},` +
    `${times[0].toPrecision(6)},${(4 * B * H * D * pairs / median / 1e6).toFixed(2)},${error.toExponential(2)}`);
  await session.release();
}

(async () => {
  for (const op of ['MHA', 'GQA', 'Attention23', 'Attention24']) {
    try {
      await measure(op);
    } catch (error) {
      console.error(`${op}: ${error.message}`);  // one way less, not a failure of the others
    }
  }
})();
