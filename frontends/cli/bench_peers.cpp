// SPDX-License-Identifier: MIT
#include "frontends/cli/bench_peers.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <system_error>

namespace attest::cli {
namespace {

/// Peers' errors are at most a few times 1e-6, or 1e-2 where bfloat16 is stored: ten times that and
/// more is another function.
constexpr double wrong_f32 = 1e-4;
constexpr double wrong_bf16 = 0.1;
constexpr double hopeless = 2;  // times the fastest

void keep_better(std::vector<PeerResult>& peers, const PeerResult& found) {
  for (PeerResult& known : peers) {
    if (known.peer != found.peer) continue;
    if (found.timing.median_ms < known.timing.median_ms) known = found;
    return;
  }
  peers.push_back(found);
}

std::string quoted_for_shell(const std::string& word) {
  std::string out = "'";
  for (const char c : word) out += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return out + "'";
}

/// What a command prints, 64 KiB at most.
std::string output_of(const std::string& command) {
  std::string out;
  std::FILE* pipe = popen(command.c_str(), "r");
  if (pipe == nullptr) return out;
  char part[4096];
  while (const std::size_t count = std::fread(part, 1, sizeof part, pipe)) {
    if (out.size() < 65536) out.append(part, count);
  }
  pclose(pipe);
  return out;
}

std::vector<std::string> split(const std::string& text, char separator) {
  std::vector<std::string> out{""};
  for (const char c : text) {
    if (c == separator) {
      out.emplace_back();
    } else {
      out.back() += c;
    }
  }
  return out;
}

std::optional<double> number_in(const std::string& word) {
  char* end = nullptr;
  const double number = std::strtod(word.c_str(), &end);
  if (word.empty() || *end != '\0') return {};
  return number;
}

const char* code_of(BenchPass pass) {
  if (pass == BenchPass::product) return "gemm";
  return pass == BenchPass::forward ? "fwd" : "bwd";
}

}  // namespace

bool is_right(const PeerResult& peer, const BenchRow& row) {
  return !(peer.max_error > (row.dtype == DType::bf16 ? wrong_bf16 : wrong_f32));
}

std::vector<PeerResult> run_peer(const std::string& program, const BenchRow& row, int threads,
                                 double best_ms) {
  std::vector<PeerResult> out;
  const std::string command = fmt::format(
      "ATTEST_BEST_MS={} {} {} {} {} {} {} {} {} {} {} {} {} 2>/dev/null", best_ms,
      quoted_for_shell(program), row.shape, row.batch, row.heads, row.kv_heads, row.queries,
      row.keys, row.width, name_of(row.mask), name_of(row.dtype), code_of(row.pass), threads);
  for (const std::string& line : split(output_of(command), '\n')) {
    const auto fields = split(line, ',');
    // peer,shape,pass,dtype,mask,threads,median_ms,best_ms,gflops,maxerr
    if (fields.size() != 10 || fields[1] != row.shape || fields[2] != code_of(row.pass) ||
        fields[3] != name_of(row.dtype) || fields[4] != name_of(row.mask) ||
        fields[5] != std::to_string(threads)) {
      continue;
    }
    const auto median = number_in(fields[6]);
    const auto best = number_in(fields[7]);
    const auto error = number_in(fields[9]);
    if (!median || !best || !error || !(*median > 0)) continue;
    out.push_back({fields[0], {*median, *best, 0}, *error, program});
  }
  return out;
}

namespace {

/// Of those whose result was right; infinity if there are none.
double best_of(const std::vector<PeerResult>& peers, const BenchRow& row) {
  double best = HUGE_VAL;
  for (const PeerResult& peer : peers) {
    if (is_right(peer, row)) best = std::min(best, peer.timing.median_ms);
  }
  return best;
}

bool is_hopeless(const std::string& program, const BenchRow& row,
                 const std::vector<PeerResult>& peers) {
  double own = HUGE_VAL;
  for (const PeerResult& peer : peers) {
    if (peer.program == program) own = std::min(own, peer.timing.median_ms);
  }
  return own > hopeless * best_of(peers, row);
}

}  // namespace

void run_peers(const std::vector<std::string>& programs, const BenchRow& row, int threads,
               double our_ms, std::vector<PeerResult>& peers) {
  const std::vector<PeerResult> before = peers;
  for (const std::string& program : programs) {
    if (!before.empty() && is_hopeless(program, row, before)) continue;
    const double best = std::min(our_ms, best_of(peers, row));
    for (const PeerResult& found : run_peer(program, row, threads, best)) {
      keep_better(peers, found);
    }
  }
}

std::string built_peers() {
  namespace fs = std::filesystem;
  std::error_code code;
  const fs::path self = fs::read_symlink("/proc/self/exe", code);  // Linux; elsewhere none
  const fs::path folder = self.parent_path() / "bench" / "peers";
  return !code && fs::is_directory(folder, code) ? folder.string() : "";
}

Result<std::vector<std::string>> programs_in(const std::string& folder) {
  namespace fs = std::filesystem;
  std::vector<std::string> out;
  std::error_code code;
  for (fs::directory_iterator entry(folder, code), end; !code && entry != end;
       entry.increment(code)) {
    const std::string path = entry->path().string();
    if (fs::is_regular_file(path, code) && access(path.c_str(), X_OK) == 0) out.push_back(path);
  }
  if (code) {
    return Failure{ErrorKind::file, "bad-peers",
                   fmt::format("[bench] {}: {}", folder, code.message())};
  }
  std::sort(out.begin(), out.end());
  return out;
}

}  // namespace attest::cli
