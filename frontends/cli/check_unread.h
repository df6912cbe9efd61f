// SPDX-License-Identifier: MIT
#pragma once

#include "attest/check/diagnose/diagnosis.h"
#include "frontends/cli/check_dump.h"

namespace attest::cli {

/// Makes a verdict of wrong and unexplained wait for the claim, if the file holds a tensor whose name is
/// that of a mask, of lengths, a bias, slopes or sinks, and that nothing has read: right code that was given
/// it would be convicted. Where an option makes every number right by it, the verdict names that option.
void consider_unread(const DumpOptions& options, const LoadedDump& loaded,
                     check::Diagnosis& diagnosis);

}  // namespace attest::cli
