// SPDX-License-Identifier: MIT
// The few messages of the ONNX format that a graph of nodes needs: what the programs that run ONNX
// Runtime, as a peer or as a witness, make their models with.
'use strict';

const varint = (n) => {
  const out = [];
  for (n = BigInt.asUintN(64, BigInt(n)); ; n >>= 7n) {
    const low = Number(n & 127n);
    out.push(n >> 7n ? low | 128 : low);
    if (!(n >> 7n)) return Buffer.from(out);
  }
};
const integer = (field, n) => Buffer.concat([varint(field << 3), varint(n)]);
const part = (field, body) => {
  const bytes = Buffer.isBuffer(body) ? body : Buffer.from(body);
  return Buffer.concat([varint((field << 3) | 2), varint(bytes.length), bytes]);
};
const real = (field, x) => {
  const bytes = Buffer.alloc(4);
  bytes.writeFloatLE(x);
  return Buffer.concat([varint((field << 3) | 5), bytes]);
};
const attribute = {
  integer: (name, n) => part(5, Buffer.concat([part(1, name), integer(3, n), integer(20, 2)])),
  real: (name, x) => part(5, Buffer.concat([part(1, name), real(2, x), integer(20, 1)])),
};
const node = (op, domain, inputs, outputs, attributes) =>
  part(1, Buffer.concat([...inputs.map((x) => part(1, x)), ...outputs.map((x) => part(2, x)),
    part(4, op), ...attributes, part(7, domain)]));
const element = { float32: 1, int32: 6, int64: 7, bool: 9, float16: 10 };
const value = (field, [name, type, dims]) => {
  const shape = Buffer.concat(dims.map((d) => part(1, integer(1, d))));
  const tensor = Buffer.concat([integer(1, element[type]), part(2, shape)]);
  return part(field, Buffer.concat([part(1, name), part(2, part(1, tensor))]));
};
/// Inputs and outputs are [name, type, extents]; the domain com.microsoft is there in its version 1.
const model = (nodes, inputs, outputs, opset) => {
  const graph = Buffer.concat([...nodes, part(2, 'g'), ...inputs.map((x) => value(11, x)),
    ...outputs.map((x) => value(12, x))]);
  const imports = [['', opset], ['com.microsoft', 1]].map(([domain, version]) =>
    part(8, Buffer.concat([part(1, domain), integer(2, version)])));
  return Buffer.concat([integer(1, 10), part(7, graph), ...imports]);
};

module.exports = { attribute, model, node };
