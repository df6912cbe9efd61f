// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <span>

#include "attest/io/tensor_file.h"

/// What the fuzz targets demand of a reader: a value that survives writing, or a polite failure.
namespace attest::fuzz {

inline void demand(bool holds, const char* law) {
  if (holds) return;
  std::fprintf(stderr, "broken law: %s\n", law);
  std::abort();
}

inline io::ByteSpan as_input(const std::uint8_t* data, std::size_t size) {
  return std::as_bytes(std::span(data, size));
}

inline void demand_polite(const Failure& failure) {
  demand(!failure.id.empty(), "a failure has an id");
  demand(failure.message.starts_with('['), "a message begins with its room");
  demand(io::is_utf8(failure.message), "a message is UTF-8");
  for (const char c : failure.message) {
    demand(static_cast<unsigned char>(c) >= 0x20, "a message is one line");
  }
}

inline bool same_bits(const AnyTensor& a, const AnyTensor& b) {
  return a.dtype() == b.dtype() && a.shape() == b.shape() &&
         std::equal(a.bytes().begin(), a.bytes().end(), b.bytes().begin());
}

/// Writing what was read and reading that again gives the same names, texts and bits.
inline void demand_round_trip(io::TensorFormat format, const Result<io::NamedTensors>& read) {
  if (!read) return demand_polite(read.failure());
  const auto written = io::serialize_tensors(format, *read);
  demand(written.has_value(), "what was read can be written");
  const io::TensorFileOptions options{.single_name = "tensor"};
  const auto back = io::parse_tensors(*written, "written", options);
  demand(back.has_value(), "what was written can be read");
  demand(io::format_of_content(*written) == format, "what was written shows its format");
  demand(back->tensors.size() == read->tensors.size(), "no tensor is lost");
  demand(back->metadata == read->metadata, "no metadata is lost");
  for (std::size_t i = 0; i < read->tensors.size(); ++i) {
    demand(back->tensors[i].first == read->tensors[i].first, "names are kept");
    demand(same_bits(back->tensors[i].second, read->tensors[i].second), "bits are kept");
  }
}

}  // namespace attest::fuzz
