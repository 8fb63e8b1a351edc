// kernel/gpu/gemm_choices.h: which algorithm was chosen for which product, and the file that stores
// it.
//
// The file is text: a line that names what the choices were measured on, a line per product, and a
// last line with their count and a hash of all before it. A file of another device or version, or
// one whose last line does not match, is ignored.
#pragma once

#include <array>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>

#include "kernel/gpu/gemm_steps.h"

namespace weft {

// The part of the workspace that the library itself may use; NVIDIA recommends 32 MiB for Hopper.
inline constexpr int64_t kLtWorkspaceBytes = int64_t{32} << 20;

// A cuBLASLt algorithm in a form that can be stored for the same library version.
struct LtAlgorithm {
  std::array<uint64_t, 8> data{};
  uint64_t workspace_bytes = 0;
  bool operator==(const LtAlgorithm&) const = default;
};

struct LtProblemHash {
  size_t operator()(const LtProblem& problem) const;
};
using GemmChoices = std::unordered_map<LtProblem, LtAlgorithm, LtProblemHash>;

// "m 1152 n 8192 k 896 bf16 to bf16 ...", "... fp32 as tf32 to fp32 ...": for messages.
std::string describe(const LtProblem& problem);

std::string gemm_choices_text(const std::string& measured_on, const GemmChoices& choices);
// None, and why, where the text is damaged or was measured on something else.
std::optional<GemmChoices> parse_gemm_choices(std::string_view text, const std::string& measured_on,
                                              std::string* why);

// ${XDG_CACHE_HOME:-~/.cache}/weft/gemm-<device>-<version>.txt; empty where there is no home.
std::filesystem::path gemm_choices_path(const std::string& device, size_t version);
// Empty, with a log line, where the file cannot be used; silently where there is none.
GemmChoices load_gemm_choices(const std::filesystem::path& path, const std::string& measured_on);
// Adds these to the file. Failing to write it is only a log line.
void save_gemm_choices(const std::filesystem::path& path, const std::string& measured_on,
                       const GemmChoices& choices);

}  // namespace weft
