// kernel/gpu/gemm_choices.cpp: choices as lines of numbers, validated on reading.
#include "kernel/gpu/gemm_choices.h"

#include <algorithm>
#include <charconv>
#include <system_error>
#include <vector>

#include "base/cache_folder.h"
#include "base/error.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/log.h"

namespace weft {
namespace {

constexpr size_t kMostBytes = size_t{4} << 20;
constexpr size_t kMostChoices = 10000;
constexpr int64_t kMostExtent = int64_t{1} << 40;

using Key = std::array<int64_t, 14>;
constexpr int64_t kTf32Mark =
    10000;  // added to the number that encodes the dtypes; older files have none

Key to_key(const LtProblem& p) {
  return {p.m,
          p.n,
          p.k,
          p.lda,
          p.ldb,
          p.ldc,
          p.ldd,
          p.a_transposed,
          p.b_transposed,
          p.adds_c,
          p.c_is_d,
          p.has_bias,
          (p.is_tf32 ? kTf32Mark : 0) + static_cast<int64_t>(p.dtype) * 100 +
              static_cast<int64_t>(p.d_dtype),
          p.alignment};
}

std::optional<Dtype> to_dtype(int64_t number) {
  for (Dtype dtype : {Dtype::kF32, Dtype::kBf16, Dtype::kF16}) {
    if (number == static_cast<int64_t>(dtype)) return dtype;
  }
  return std::nullopt;
}

std::optional<LtProblem> from_key(const Key& key) {
  LtProblem p;
  int64_t* const extents[] = {&p.m, &p.n, &p.k, &p.lda, &p.ldb, &p.ldc, &p.ldd};
  for (size_t i = 0; i < 7; ++i) {
    if (key[i] < 1 || key[i] > kMostExtent) return std::nullopt;
    *extents[i] = key[i];
  }
  bool* const flags[] = {&p.a_transposed, &p.b_transposed, &p.adds_c, &p.c_is_d, &p.has_bias};
  for (size_t i = 0; i < 5; ++i) {
    if (key[7 + i] < 0 || key[7 + i] > 1) return std::nullopt;
    *flags[i] = key[7 + i] == 1;
  }
  p.is_tf32 = key[12] >= kTf32Mark;
  const int64_t types = key[12] - (p.is_tf32 ? kTf32Mark : 0);
  const auto dtype = to_dtype(types / 100), d_dtype = to_dtype(types % 100);
  if (p.is_tf32 && dtype != Dtype::kF32) return std::nullopt;
  if (!dtype || !d_dtype || key[13] < kOperandAlignment || key[13] > 256) return std::nullopt;
  p.dtype = *dtype;
  p.d_dtype = *d_dtype;
  p.alignment = key[13];
  return p;
}

// The next number of a line; words are one blank apart.
template <typename Number>
bool take(std::string_view* line, Number* number, int base) {
  const auto [end, error] =
      std::from_chars(line->data(), line->data() + line->size(), *number, base);
  if (error != std::errc{}) return false;
  line->remove_prefix(static_cast<size_t>(end - line->data()));
  if (line->empty()) return true;
  if (line->front() != ' ') return false;
  line->remove_prefix(1);
  return true;
}

bool parse_choice(std::string_view line, GemmChoices* choices) {
  Key key;
  LtAlgorithm algorithm;
  for (int64_t& number : key) {
    if (!take(&line, &number, 10)) return false;
  }
  if (!take(&line, &algorithm.workspace_bytes, 10)) return false;
  for (uint64_t& word : algorithm.data) {
    if (!take(&line, &word, 16)) return false;
  }
  const auto problem = from_key(key);
  if (!problem || !line.empty()) return false;
  if (algorithm.workspace_bytes > static_cast<uint64_t>(kLtWorkspaceBytes)) return false;
  return choices->emplace(*problem, algorithm).second;
}

std::string last_line(std::string_view text, size_t count) {
  return fmt::format("end {} {}\n", count, hash_hex(hash_text(text)));
}

std::string_view take_line(std::string_view* text) {
  const size_t end = text->find('\n');
  if (end == std::string_view::npos) return {};
  const std::string_view line = text->substr(0, end);
  text->remove_prefix(end + 1);
  return line;
}

}  // namespace

size_t LtProblemHash::operator()(const LtProblem& problem) const {
  const Key key = to_key(problem);
  return static_cast<size_t>(hash_bytes(key.data(), sizeof key));
}

std::string describe(const LtProblem& p) {
  return fmt::format("m {} n {} k {} lda {} ldb {} ldc {} ldd {} {}{} {}{} to {}{}{}{} aligned {}",
                     p.m, p.n, p.k, p.lda, p.ldb, p.ldc, p.ldd, p.a_transposed ? 'T' : 'N',
                     p.b_transposed ? 'T' : 'N', dtype_name(p.dtype), p.is_tf32 ? " as tf32" : "",
                     dtype_name(p.d_dtype), p.adds_c ? " +C" : "", p.c_is_d ? "" : " apart",
                     p.has_bias ? " +bias" : "", p.alignment);
}

std::string gemm_choices_text(const std::string& measured_on, const GemmChoices& choices) {
  std::vector<std::string> lines;
  for (const auto& [problem, algorithm] : choices) {
    std::string line;
    for (int64_t number : to_key(problem)) line += fmt::format("{} ", number);
    line += fmt::format("{}", algorithm.workspace_bytes);
    for (uint64_t word : algorithm.data) line += fmt::format(" {:x}", word);
    lines.push_back(line + "\n");
  }
  std::sort(lines.begin(), lines.end());
  std::string text = measured_on + "\n";
  for (const std::string& line : lines) text += line;
  return text + last_line(text, lines.size());
}

std::optional<GemmChoices> parse_gemm_choices(std::string_view text, const std::string& measured_on,
                                              std::string* why) {
  const std::string_view whole = text;
  if (take_line(&text) != measured_on) {
    *why = "it was measured on something else";
    return std::nullopt;
  }
  *why = "it is damaged";
  GemmChoices choices;
  while (!text.empty()) {
    const size_t at = whole.size() - text.size();
    const std::string_view rest = text;
    const std::string_view line = take_line(&text);
    if (line.starts_with("end ")) {
      if (rest != last_line(whole.substr(0, at), choices.size())) return std::nullopt;
      return choices;
    }
    if (choices.size() == kMostChoices || !parse_choice(line, &choices)) return std::nullopt;
  }
  return std::nullopt;
}

std::filesystem::path gemm_choices_path(const std::string& device, size_t version) {
  const std::filesystem::path folder = cache_folder();
  if (folder.empty()) return folder;
  std::string name = "gemm-";
  for (char c : device) {
    const bool is_plain =
        (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z');
    name += is_plain ? c : '_';
  }
  return folder / fmt::format("{}-{}.txt", name, version);
}

GemmChoices load_gemm_choices(const std::filesystem::path& path, const std::string& measured_on) {
  std::error_code error;
  if (path.empty() || !std::filesystem::exists(path, error)) return {};
  std::string why;
  try {
    const auto choices = parse_gemm_choices(read_file(path, kMostBytes), measured_on, &why);
    if (choices) return *choices;
  } catch (const Error& e) {
    why = e.what();
  }
  log_info("{} is measured again: {}", path.string(), why);
  return {};
}

void save_gemm_choices(const std::filesystem::path& path, const std::string& measured_on,
                       const GemmChoices& choices) {
  if (path.empty()) return;
  try {
    GemmChoices all = choices;
    all.merge(load_gemm_choices(path, measured_on));
    if (all.size() > kMostChoices) all = choices;
    std::filesystem::create_directories(path.parent_path());
    write_file_atomic(path, gemm_choices_text(measured_on, all));
  } catch (const std::exception& e) {
    log_warning("matrix product choices could not be stored: {}", e.what());
  }
}

}  // namespace weft
