// SPDX-License-Identifier: MIT
#include "frontends/cli/case_lists.h"

#include <optional>
#include <utility>

#include "attest/base/text.h"

namespace attest::cli {
namespace {

Failure bad(std::string id, std::string message) {
  return {ErrorKind::value, std::move(id), "[input] " + std::move(message)};
}

/// The file's tensor of that role, unless the command line has the list.
Result<std::optional<AnyTensor>> tensor_of(Sources& sources, const CaseOptions& options,
                                           const ListRole& role, bool given) {
  if (given && options.names.contains(role.flag)) {
    return bad("two-sources", sentence("--", role.flag, " and an option of its own both say ",
                                       role.name, ": give one"));
  }
  auto found = sources.find(role.name, role.flag);
  if (!found || !*found) return found;
  const Shape& shape = (*found)->shape();
  if (shape.size() == 1 && shape[0] == 0) {
    return bad("bad-rank", sentence(role.name, " is empty: it has shape [0]"));
  }
  if (shape.empty() || shape.size() > role.most_axes || (*found)->size() == 0) {
    return bad("bad-rank", sentence(role.name,
                                    role.most_axes == 1 ? " must be a vector"
                                                        : " must be a vector, or one a batch",
                                    "; it has shape ", to_string(shape)));
  }
  if (!given) return found;
  sources.remark(sentence("the file's ", role.name, " is overridden by the command line"));
  return std::optional<AnyTensor>();
}

}  // namespace

Result<std::vector<double>> list_of(Sources& sources, const CaseOptions& options,
                                    const ListRole& role, const std::vector<double>& given) {
  const auto tensor = tensor_of(sources, options, role, !given.empty());
  if (!tensor) return tensor.failure();
  if (!*tensor) return given;
  const auto numbers = (*tensor)->to_f64(role.name);
  if (!numbers) return numbers.failure();
  return std::vector<double>(numbers->elements().begin(), numbers->elements().end());
}

/// Whole numbers of any type: JSON has no others than 3 and 3.0.
Result<std::vector<std::int64_t>> list_of(Sources& sources, const CaseOptions& options,
                                          const ListRole& role,
                                          const std::vector<std::int64_t>& given) {
  const auto tensor = tensor_of(sources, options, role, !given.empty());
  if (!tensor) return tensor.failure();
  if (!*tensor) return given;
  std::vector<std::int64_t> out;
  for (std::size_t n = 0; n < (*tensor)->size(); ++n) {
    const double number = (*tensor)->number(n);
    const bool whole = number >= -0x1p53 && number <= 0x1p53 &&
                       static_cast<double>(static_cast<std::int64_t>(number)) == number;
    if (!whole || (*tensor)->dtype() == DType::boolean) {
      return bad("bad-option", sentence(role.name, "[", n, "] must be a whole number; it is ",
                                        number, " (", name_of((*tensor)->dtype()), ")"));
    }
    out.push_back(static_cast<std::int64_t>(number));
  }
  return out;
}

}  // namespace attest::cli
