#!/usr/bin/env node
// SPDX-License-Identifier: MIT
// Runs ONNX Runtime on inputs on which nothing coincides, and has `attest check` judge what it gives:
//
//     node tests/live/onnxruntime.js build/release/attest
//
// Its attention is right where it is said to be, and two of its habits are found and named: the last row
// of MultiHeadAttention with unidirectional=1 and fewer queries than keys sees every key, and so does a
// row whose keys are all padding. Needs the npm package onnxruntime-node, found as Node finds modules or
// in the folder that ORT_DIR names; exit 77 without it. Exit 0 if every verdict is the expected one.
'use strict';

const { execFileSync } = require('child_process');
const fs = require('fs');
const os = require('os');
const path = require('path');
const { attribute, model, node } = require('../../bench/onnx_graph.js');

let ort;
try {
  ort = require(process.env.ORT_DIR || 'onnxruntime-node');
} catch (error) {
  console.log('not compared: the npm package onnxruntime-node is not installed');
  process.exit(77);
}
const attest = process.argv[2] || 'attest';
const folder = fs.mkdtempSync(path.join(os.tmpdir(), 'attest-live-'));

const count = (shape) => shape.reduce((a, b) => a * b, 1);
let state = 20170612;
const uniform = () => {
  state ^= state << 13; state ^= state >>> 17; state ^= state << 5;
  return (state >>> 0) / 4294967296;
};
const numbers = (shape) => Float32Array.from({ length: count(shape) }, () => (uniform() - 0.5) * 3.4641016);

const dtypes = { float32: 'F32', int32: 'I32', bool: 'BOOL' };
function write(file, tensors) {
  const header = {}, parts = [];
  let at = 0;
  for (const [name, { type, data, shape }] of Object.entries(tensors)) {
    const bytes = Buffer.from(data.buffer, data.byteOffset, data.byteLength);
    header[name] = { dtype: dtypes[type], shape, data_offsets: [at, at + bytes.length] };
    parts.push(bytes);
    at += bytes.length;
  }
  let text = JSON.stringify(header);
  text += ' '.repeat((8 - (text.length % 8)) % 8);
  const length = Buffer.alloc(8);
  length.writeBigUInt64LE(BigInt(text.length));
  fs.writeFileSync(file, Buffer.concat([length, Buffer.from(text), ...parts]));
}

const real = (shape) => ({ type: 'float32', data: numbers(shape), shape });
const [B, T, S, D] = [2, 7, 11, 24];  // GroupQueryAttention takes multiples of 8
const lower = (queries, keys) => {
  const data = Uint8Array.from({ length: B * queries * keys }, () => (uniform() < 0.6 ? 1 : 0));
  for (let row = 0; row < B * queries; ++row) data[row * keys] = 1;  // no row is empty
  return { type: 'bool', data, shape: [B, 1, queries, keys] };
};

/// name, what is run, the claim, and the verdict: 'right', or the names of which one is to be given.
const cases = [
  { name: 'plain', op: 'Attention', H: 6, G: 6, T, S, claim: ['--causal', 'none'] },
  { name: 'causal', op: 'Attention', H: 6, G: 6, T: S, S, is_causal: 1, claim: ['--causal'] },
  { name: 'causal, fewer queries than keys', op: 'Attention', H: 6, G: 6, T, S, is_causal: 1,
    claim: ['--causal', 'top-left'] },
  { name: 'the same, claimed bottom-right', op: 'Attention', H: 6, G: 6, T, S, is_causal: 1,
    claim: ['--causal', 'bottom-right'], expect: ['causal.top_left'] },
  { name: 'masked', op: 'Attention', H: 6, G: 6, T, S, mask: lower(T, S), claim: ['--causal', 'none'] },
  { name: 'grouped', op: 'Attention', H: 6, G: 2, T, S, claim: ['--causal', 'none'] },
  { name: 'softcapped', op: 'Attention', H: 6, G: 6, T, S, softcap: 1.5, claim: ['--softcap', '1.5'] },
  { name: 'windowed', op: 'GroupQueryAttention', H: 6, G: 2, T: S, S, window: 4,
    claim: ['--causal', '--window', '3,'] },
  { name: 'MultiHeadAttention', op: 'MultiHeadAttention', H: 6, G: 6, T, S, claim: ['--causal', 'none'] },
  { name: 'MultiHeadAttention, causal', op: 'MultiHeadAttention', H: 6, G: 6, T: S, S, unidirectional: 1,
    claim: ['--causal'] },
  { name: 'MultiHeadAttention, causal, 3 queries, 5 keys', op: 'MultiHeadAttention', H: 6, G: 6, T: 3, S: 5,
    unidirectional: 1, claim: ['--causal', 'top-left'], expect: ['causal.last_row_open'] },
  { name: 'MultiHeadAttention, a batch entry all padding', op: 'MultiHeadAttention', H: 6, G: 6, T, S,
    padding: [S - 3, 0], claim: ['--empty-row', 'zero'],
    expect: ['mask.fill_added', 'mask.finite_fill', 'empty_rows.unmasked'] },
];

function graphOf(c) {
  const packed = c.op !== 'Attention';
  const dims = (heads, length) => (packed ? [B, length, heads * D] : [B, heads, length, D]);
  const tensors = { query: real(dims(c.H, c.T)), key: real(dims(c.G, c.S)), value: real(dims(c.G, c.S)) };
  const inputs = ['query', 'key', 'value'], attributes = [];
  const extra = {};
  if (c.op === 'Attention') {
    if (c.is_causal) attributes.push(attribute.integer('is_causal', 1));
    if (c.softcap) attributes.push(attribute.real('softcap', c.softcap));
    if (c.mask) {
      tensors.mask = c.mask;
      inputs.push('mask');
    }
  } else {
    attributes.push(attribute.integer('num_heads', c.H));
  }
  if (c.op === 'GroupQueryAttention') {
    attributes.push(attribute.integer('kv_num_heads', c.G), attribute.integer('local_window_size', c.window));
    extra.last = { type: 'int32', data: new Int32Array(B).fill(c.S - 1), shape: [B] };
    extra.total = { type: 'int32', data: Int32Array.of(c.S), shape: [1] };
    inputs.push('', '', 'last', 'total');
  }
  if (c.unidirectional) attributes.push(attribute.integer('unidirectional', 1));
  if (c.padding) {
    const keep = Int32Array.from({ length: B * c.S }, (_, n) => (n % c.S < c.padding[Math.floor(n / c.S)] ? 1 : 0));
    extra.padding = { type: 'int32', data: keep, shape: [B, c.S] };
    inputs.push('', 'padding');
  }
  const feeds = { ...tensors, ...extra };
  const outputs = c.op === 'GroupQueryAttention' ? ['output', 'present_key', 'present_value'] : ['output'];
  const domain = c.op === 'Attention' ? '' : 'com.microsoft';
  const bytes = model([node(c.op, domain, inputs, outputs, attributes)],
    Object.entries(feeds).map(([name, t]) => [name, t.type, t.shape]),
    [['output', 'float32', dims(c.H, c.T)]], c.op === 'Attention' ? 23 : 21);
  const flags = packed ? ['--layout', 'packed', '--heads', `${c.H}`, '--kv-heads', `${c.G}`] : [];
  if (c.padding) flags.push('--key-lengths', c.padding.join(','));
  return { bytes, feeds, tensors, flags };
}

function check(file, flags) {
  try {
    return { code: 0, report: JSON.parse(execFileSync(attest, ['check', file, '--json', ...flags],
      { encoding: 'utf8', stdio: ['ignore', 'pipe', 'pipe'] })) };
  } catch (error) {
    let report = null;
    try { report = JSON.parse(error.stdout); } catch (_) { /* it ended before there was one */ }
    return { code: error.status, report, said: error.stderr };
  }
}

(async () => {
  let failed = 0;
  for (const c of cases) {
    const g = graphOf(c);
    const session = await ort.InferenceSession.create(g.bytes, { logSeverityLevel: 4 });
    const feeds = Object.fromEntries(Object.entries(g.feeds).map(([name, t]) =>
      [name, new ort.Tensor(t.type, t.data, t.shape)]));
    const output = (await session.run(feeds)).output;
    await session.release();
    const file = path.join(folder, 'dump.safetensors');
    write(file, { ...g.tensors, output: { type: 'float32', data: output.data, shape: output.dims } });
    const { code, report, said } = check(file, [...g.flags, ...c.claim]);
    const best = report && report.explanations && report.explanations[0];
    const names = best ? best.mistakes.map((m) => m.name) : [];
    const same = best && best.same ? best.same : [];
    const expected = c.expect || [];
    const ok = expected.length === 0 ? code === 0
      : code === 1 && [...names, ...same].some((name) => expected.some((e) => name.startsWith(e)));
    failed += !ok;
    console.log(`${ok ? 'ok  ' : 'FAIL'} ${c.name}: exit ${code} ${names.join(' + ')}${ok ? '' : ` ${said || ''}`}`);
    if (process.env.ATTEST_KEEP) fs.copyFileSync(file, path.join(process.env.ATTEST_KEEP, `${c.name.replace(/\W+/g, '_')}.safetensors`));
  }
  fs.rmSync(folder, { recursive: true });
  process.exit(failed ? 1 : 0);
})();
