// SPDX-License-Identifier: MIT
#include "attest/check/probe/probe.h"

#include <utility>

#include "attest/base/text.h"
#include "attest/check/probe/probe_plan.h"
#include "attest/io/origin.h"

namespace attest::check {
namespace {

struct Named {
  std::string_view name;
  bool ProbeFeatures::*flag;
};

/// The features that are one flag, in the order in which they are listed.
constexpr Named flags[] = {
    {"causal", &ProbeFeatures::causal},      {"window", &ProbeFeatures::window},
    {"mask", &ProbeFeatures::mask},          {"bias", &ProbeFeatures::bias},
    {"grouped", &ProbeFeatures::grouped},    {"alibi", &ProbeFeatures::alibi},
    {"sink", &ProbeFeatures::sink},          {"softcap", &ProbeFeatures::softcap},
    {"scale", &ProbeFeatures::scale},        {"rope", &ProbeFeatures::rope},
    {"cache", &ProbeFeatures::cache},        {"lengths", &ProbeFeatures::lengths},
    {"packed", &ProbeFeatures::packed},      {"dropout", &ProbeFeatures::dropout},
    {"gradients", &ProbeFeatures::gradients}};

/// The features that say more than a flag.
bool add_special(std::string_view name, ProbeFeatures& features) {
  if (name == "top-left" || name == "bottom-right") {
    features.causal = true;
    features.corner = name == "top-left" ? Corner::top_left : Corner::bottom_right;
    return true;
  }
  if (name == "rope-interleaved") {
    features.rope = features.interleaved = true;
    return true;
  }
  return false;
}

}  // namespace

namespace {

/// One feature under two names that exclude each other: the first would be lost without a word.
Result<void> names_one_of_each(const std::vector<std::string_view>& named) {
  constexpr std::pair<std::string_view, std::string_view> pairs[] = {{"top-left", "bottom-right"},
                                                                     {"rope", "rope-interleaved"}};
  const auto has = [&](std::string_view name) {
    return std::ranges::find(named, name) != named.end();
  };
  for (const auto& [one, other] : pairs) {
    if (!has(one) || !has(other)) continue;
    return Failure{ErrorKind::value, "features-conflict",
                   sentence("[probe] ", one, " and ", other, " are two things: name one")};
  }
  return {};
}

}  // namespace

Result<ProbeFeatures> features_of(std::string_view list) {
  ProbeFeatures out;
  std::vector<std::string_view> named;
  for (bool more = !list.empty(); more;) {
    const std::size_t comma = list.find(',');
    const std::string_view name = list.substr(0, comma);
    more = comma != std::string_view::npos;
    if (more) list.remove_prefix(comma + 1);
    named.push_back(name);
    bool known = add_special(name, out);
    for (const Named& flag : flags) {
      if (flag.name != name) continue;
      out.*flag.flag = true;
      known = true;
    }
    if (known) continue;
    std::string there = "top-left, bottom-right, rope-interleaved";
    for (const Named& flag : flags) there += sentence(", ", flag.name);
    return Failure{
        ErrorKind::value, "unknown-feature",
        sentence("[probe] there is no feature ", io::in_quotes(name), "; there are ", there)};
  }
  if (auto ok = names_one_of_each(named); !ok) return ok.failure();
  return out;
}

std::vector<std::string_view> names_of(const ProbeFeatures& features) {
  std::vector<std::string_view> out;
  for (const Named& flag : flags) {
    if (!(features.*flag.flag)) continue;
    if (flag.name == "causal" && features.corner) {
      out.push_back(*features.corner == Corner::top_left ? "top-left" : "bottom-right");
    } else if (flag.name == "rope" && features.interleaved) {
      out.push_back("rope-interleaved");
    } else {
      out.push_back(flag.name);
    }
  }
  return out;
}

std::string command_of(const ProbeRequest& request) {
  std::string features;
  for (const std::string_view name : names_of(request.features)) {
    features += sentence(features.empty() ? "" : ",", name);
  }
  std::string out = "attest probe";
  if (!features.empty()) out += " --features " + features;
  if (!request.convention.empty()) out += " --convention " + request.convention;
  if (!request.layout.empty()) out += " --layout " + request.layout;
  if (request.dtype != DType::f32) out += sentence(" --dtype ", name_of(request.dtype));
  if (request.head_dim != 0) out += sentence(" --head-dim ", request.head_dim);
  if (request.hostile) out += " --hostile";
  if (request.long_lengths) out += " --long";
  return sentence(out, " --seed ", request.seed);
}

Result<Probe> make_probe(const ProbeRequest& request) {
  auto plan = plan_of(request);
  if (!plan) return plan.failure();
  return drawn(*std::move(plan));
}

}  // namespace attest::check
