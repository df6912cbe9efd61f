// SPDX-License-Identifier: MIT
#pragma once

#include <CLI/App.hpp>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "attest/base/attention_case.h"
#include "attest/base/result.h"
#include "attest/io/named_tensors.h"
#include "frontends/cli/case_layout.h"
#include "frontends/cli/print.h"

namespace attest::cli {

/// Everything that the command line can say about an attention call: which files, which tensors in
/// them, and every option by name. attend, trace and why share it.
struct CaseOptions {
  std::string file;                          ///< a bundle: safetensors, npz or JSON; "-" is input
  std::map<std::string, std::string> names;  ///< role → tensor of the bundle, or file of its own
  std::string causal;                        ///< "", square, top-left, bottom-right or an offset
  std::string window;                        ///< "left,right"; an empty side is open
  std::vector<std::int64_t> query_offset;
  std::vector<std::int64_t> key_lengths;
  std::vector<std::int64_t> query_starts, key_starts;        ///< packed documents
  std::vector<std::int64_t> query_documents, key_documents;  ///< documents by name
  std::optional<double> scale;
  std::optional<double> softcap;
  bool alibi = false;
  std::vector<double> alibi_slopes;
  std::vector<double> sink;
  std::optional<double> dropout;
  std::optional<std::uint64_t> seed;
  std::string empty_row;
  std::string layout;  ///< "": bhtd, or what the convention says
  std::optional<std::int64_t> heads;
  std::optional<std::int64_t> kv_heads;
  std::string convention;
  std::optional<std::int64_t> unpack_limit_gib;
};

void add_case_options(CLI::App& command, CaseOptions& options);

/// A tensor that a file holds and that nothing reads.
struct UnreadTensor {
  std::string name;
  Shape shape;
};

/// A call read from files, and what is needed to write its result in the layout it came in.
struct LoadedCase {
  PlacedTensor query, key, value;  ///< in the number types of the files
  AttentionCase call;              ///< its query, key and value are empty until `widen`
  GivenLayout given;
  std::vector<std::string> remarks;  ///< what was taken for granted: "reading 'q' as query"
  std::vector<UnreadTensor> unread{};
};
[[nodiscard]] Result<LoadedCase> load_case(const CaseOptions& options);
/// The same with these tensors in place of a file: the workbook's fixtures.
[[nodiscard]] Result<LoadedCase> load_case(const CaseOptions& options, io::NamedTensors bundle);

/// Fills in query, key and value of the call, as the exact tier and the oracle take them: binary64,
/// which holds every number of a file exactly, or fails.
[[nodiscard]] Result<void> widen(LoadedCase& loaded);

/// The same failure in the words of the command line: options and tensors instead of C++ members.
[[nodiscard]] Failure in_words_of_options(Failure failure);

/// Whether anything but --causal was chosen: the workbook's block has no such options.
[[nodiscard]] bool only_causal(const CaseOptions& options);

/// Options that say how numbers are printed; the options come back so that those which print none can
/// exclude them.
std::vector<CLI::Option*> add_number_options(CLI::App& command, NumberStyle& style);

}  // namespace attest::cli
