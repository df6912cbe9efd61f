// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "attest/io/bytes.h"
#include "attest/io/named_tensors.h"

namespace attest::io {

// Failure ids of this header, beside those of zip.h, npy.h, sniff.h and bytes.h:
//
//   not-an-npz-file  it does not begin like a zip archive
//   not-an-array     an entry whose name does not end in .npy
//   torch-file       a torch.save archive
//   zip-bomb         an entry that claims to unpack to more than deflate can give
//   over-limit       all entries together unpack to more than NpzLimits::max_total_bytes
//   bad-name         (writing) a name with a NUL byte, or of more than 65531 bytes

/// What reading may cost. A few thousand packed bytes can claim gigabytes; the caller says how much
/// is meant.
struct NpzLimits {
  /// All arrays together, unpacked.
  std::uint64_t max_total_bytes = std::uint64_t{16} << 30U;
  /// Unpacked over packed, for each entry. Deflate's best is a length code and a distance code of
  /// one bit each for 258 bytes, so 1032 to 1; an honest entry never claims more.
  std::uint64_t max_ratio = 1032;
};

/// Reads all arrays of an npz archive, "w.npy" as tensor "w".
///
/// Format        zip, stored or deflate, with zip64 and data descriptors; each entry an npy file.
/// Edge cases    everything is checked before anything is unpacked: see zip.h. An entry that is not
///               .npy is refused, since something meant to be read would otherwise be left out.
/// Cost          the claimed sizes are checked against the limits first; memory then grows with
///               what really comes out.
[[nodiscard]] Result<NamedTensors> parse_npz(ByteSpan bytes, std::string_view source_name,
                                             const NpzLimits& limits = {});

[[nodiscard]] Result<NamedTensors> read_npz(const std::string& path, const NpzLimits& limits = {});

/// An archive of stored entries, as numpy.savez writes it. Metadata has no place in npz and is left
/// out; a bf16 tensor fails, as in npy.h.
[[nodiscard]] Result<Bytes> serialize_npz(const NamedTensors& tensors);

[[nodiscard]] Result<void> write_npz(const std::string& path, const NamedTensors& tensors);

}  // namespace attest::io
