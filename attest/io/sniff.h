// SPDX-License-Identifier: MIT
#pragma once

#include <optional>

#include "attest/io/bytes.h"
#include "attest/io/origin.h"

namespace attest::io {

// Failure ids of this header:
//
//   empty-file      no byte at all
//   html-page       a web page saved under the file's name
//   lfs-pointer     Git-LFS's stand-in for the file
//   gzip-file       compressed as a whole
//   torch-file      written by torch.save, zip or pickle
//   pickle-file     another pickle
//   other-format    a format known by its first bytes (HDF5, GGUF, npy, zip …)

/// What a file is that a reader cannot read, when its first bytes tell: the failure to return, with
/// the way out in it. Nothing, when they do not tell.
///
/// The commonest reason why weights do not load is not damage but a login page or a pointer file
/// saved under their name; "header too large" helps nobody then.
[[nodiscard]] std::optional<Failure> recognise_stranger(ByteSpan bytes, const Origin& origin);

}  // namespace attest::io
