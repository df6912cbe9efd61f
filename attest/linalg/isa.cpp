// SPDX-License-Identifier: MIT
#include "attest/linalg/isa.h"

#include <array>
#include <cstdlib>
#include <string>

#include "attest/linalg/execution.h"

#if defined(__x86_64__)
#include <cpuid.h>
#if defined(__linux__)
#include <sys/syscall.h>
#include <unistd.h>
#endif
#endif

namespace attest {
namespace {

constexpr std::array<std::string_view, 5> names{"portable", "avx2", "avx512", "avx512bf16", "amx"};

#if defined(__x86_64__)

struct Registers {
  unsigned eax = 0;
  unsigned ebx = 0;
  unsigned ecx = 0;
  unsigned edx = 0;
};

Registers cpuid(unsigned leaf, unsigned subleaf) {
  Registers r;
  __get_cpuid_count(leaf, subleaf, &r.eax, &r.ebx, &r.ecx, &r.edx);
  return r;
}

constexpr bool bit(unsigned word, unsigned number) { return ((word >> number) & 1U) != 0; }

/// The register sets that the system saves when it switches tasks (XCR0).
unsigned saved_by_system() {
  if (!bit(cpuid(1, 0).ecx, 27)) return 0;  // OSXSAVE
  unsigned low = 0;
  unsigned high = 0;
  __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return low;
}

bool is_intel() {
  const Registers r = cpuid(0, 0);
  return r.ebx == 0x756e6547U;  // "Genu", of GenuineIntel
}

/// Linux gives tile registers only to a process that asks (arch_prctl, since 5.16).
bool tiles_permitted() {
#if defined(__linux__) && defined(SYS_arch_prctl)
  constexpr long request_permission = 0x1023;
  constexpr long tile_data = 18;
  return syscall(SYS_arch_prctl, request_permission, tile_data) == 0;
#else
  return false;
#endif
}

struct Presence {
  std::array<bool, 5> present{true};
  std::array<std::string_view, 5> remarks{};  // why it is absent
};

constexpr std::string_view no_such_instructions = "this processor lacks it";
constexpr std::string_view registers_not_saved = "the system does not save its registers";

Presence look() {
  Presence out;
  const unsigned saved = saved_by_system();
  const Registers one = cpuid(1, 0);
  const Registers seven = cpuid(7, 0);
  const bool ymm = (saved & 0x6U) == 0x6U;
  const bool zmm = (saved & 0xE6U) == 0xE6U;
  const bool tiles = (saved & 0x60000U) == 0x60000U;
  const std::array<bool, 5> instructions{
      true, bit(one.ecx, 12) && bit(one.ecx, 29) && bit(seven.ebx, 5),
      bit(seven.ebx, 16) && bit(seven.ebx, 17) && bit(seven.ebx, 30) && bit(seven.ebx, 31),
      bit(cpuid(7, 1).eax, 5), bit(seven.edx, 22) && bit(seven.edx, 24)};
  const std::array<bool, 5> registers{true, ymm, zmm, zmm, tiles};
  for (std::size_t i = 1; i < names.size(); ++i) {
    // Each set needs the one before: what is missing there is missing here.
    out.present[i] = out.present[i - 1] && instructions[i] && registers[i];
    if (out.present[i]) continue;
    out.remarks[i] = !instructions[i] ? no_such_instructions
                     : !registers[i]  ? registers_not_saved
                                      : out.remarks[i - 1];
  }
  constexpr std::size_t amx = 4;
  if (out.present[amx] && !tiles_permitted()) {
    out.present[amx] = false;
    out.remarks[amx] = "the system refuses this process the tile registers";
  }
  return out;
}

std::vector<IsaState> ask_the_machine() {
  const Presence found = look();
  std::vector<IsaState> out;
  for (std::size_t i = 0; i < names.size(); ++i) {
    out.push_back({.isa = static_cast<Isa>(i),
                   .built = true,
                   .present = found.present[i],
                   .remark = found.remarks[i]});
  }
  std::size_t best = names.size() - 1;
  while (!out[best].present) --best;
  if (out[best].isa == Isa::avx512bf16 && is_intel()) {
    // On Intel's cores a bfloat16 dot product has half the rate of the f32 multiply-add it replaces.
    out[best--].remark = "present, but slower than avx512 on this maker's processors";
  }
  out[best].preferred = true;
  return out;
}

#else

std::vector<IsaState> ask_the_machine() {
  std::vector<IsaState> out;
  for (std::size_t i = 0; i < names.size(); ++i) {
    const bool here = i == 0;
    out.push_back({.isa = static_cast<Isa>(i),
                   .built = here,
                   .present = here,
                   .preferred = here,
                   .remark = here ? "" : "for x86-64 only"});
  }
  return out;
}

#endif

}  // namespace

std::string_view name_of(Isa isa) noexcept { return names[static_cast<std::size_t>(isa)]; }

const std::vector<IsaState>& instruction_sets() {
  static const std::vector<IsaState> rows = ask_the_machine();
  return rows;
}

Result<Isa> isa_of(std::string_view name) {
  std::string present;
  for (const IsaState& row : instruction_sets()) {
    if (!row.present) continue;
    if (name_of(row.isa) == name) return row.isa;
    if (!present.empty()) present += ", ";
    present += name_of(row.isa);
  }
  return Failure{ErrorKind::value, "bad-isa",
                 "[isa] this machine has no instruction set \"" + std::string(name) +
                     "\" for these kernels; it has " + present};
}

Result<Isa> default_isa() {
  if (const char* wanted = std::getenv("ATTEST_ISA"); wanted != nullptr && *wanted != '\0') {
    return isa_of(wanted);
  }
  for (const IsaState& row : instruction_sets()) {
    if (row.preferred) return row.isa;
  }
  return Isa::portable;
}

ThreadPool& shared_threads() {
  static ThreadPool pool;
  return pool;
}

}  // namespace attest
