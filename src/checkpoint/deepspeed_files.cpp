// checkpoint/deepspeed_files.cpp: names of files, sorted by the rank in them.
#include "checkpoint/deepspeed_files.h"

#include <algorithm>
#include <charconv>
#include <map>
#include <optional>
#include <string_view>

#include "base/error.h"
#include "base/file.h"
#include "base/path.h"
#include "base/printable.h"
#include "checkpoint/foreign.h"

namespace weft {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kModelEnd = "_model_states.pt", kOptimEnd = "_optim_states.pt";

bool has_model_states(const fs::path& folder) {
  const auto names = folder_names(folder);
  return std::any_of(names.begin(), names.end(),
                     [](const std::string& n) { return n.ends_with(kModelEnd); });
}

// `latest`; where there is only a universal checkpoint, latest_universal.
fs::path latest_file(const fs::path& folder) {
  const fs::path latest = folder / "latest", universal = folder / "latest_universal";
  const bool has_latest = path_kind(latest) != PathKind::kNothing;
  return has_latest || path_kind(universal) == PathKind::kNothing ? latest : universal;
}

// The number after `before` in the name; none where there is no such number.
std::optional<int64_t> number_after(const std::string& name, std::string_view before) {
  const size_t at = name.find(before);
  if (at == std::string::npos) return std::nullopt;
  int64_t number = 0;
  const char* first = name.data() + at + before.size();
  const auto [end, error] = std::from_chars(first, name.data() + name.size(), number);
  return error == std::errc() && end != first ? std::optional(number) : std::nullopt;
}

std::vector<fs::path> in_order(const std::map<int64_t, fs::path>& files, const fs::path& folder,
                               std::string_view end) {
  std::vector<fs::path> out;
  for (const auto& [rank, path] : files) {
    if (rank != static_cast<int64_t>(out.size()))
      throw UserError(fmt::format("{} has no *{} of rank {}", folder.string(), end, out.size()),
                      kWholeDeepSpeedFolder);
    out.push_back(path);
  }
  return out;
}

}  // namespace

bool is_deepspeed(const fs::path& folder) {
  if (path_kind(folder) != PathKind::kFolder) return false;
  return path_kind(latest_file(folder)) == PathKind::kFile || has_model_states(folder);
}

// The text of `latest` must not lead out of the folder.
fs::path deepspeed_step_folder(const fs::path& folder) {
  if (has_model_states(folder)) return folder;
  const fs::path latest = latest_file(folder);
  std::string tag = read_file(latest, 4096);
  while (!tag.empty() && (tag.back() == '\n' || tag.back() == ' ')) tag.pop_back();
  require(!tag.empty() && tag != "." && tag != ".." && tag.find('/') == std::string::npos &&
              tag.find('\0') == std::string::npos,
          "{} names \"{}\", wanted a folder beside it", latest.string(), printable_line(tag));
  if (!has_model_states(folder / tag)) {
    throw UserError(fmt::format("{} names {}, which holds no *{}", latest.string(),
                                printable_line(tag), kModelEnd),
                    kWholeDeepSpeedFolder);
  }
  return folder / tag;
}

DeepSpeedFiles list_deepspeed_files(const fs::path& folder) {
  std::map<int64_t, fs::path> model, optim;
  for (const std::string& name : folder_names(folder)) {
    const bool is_optim = name.ends_with(kOptimEnd);
    if (!is_optim && !name.ends_with(kModelEnd.substr(1))) continue;  // layer_01-model_states.pt
    const auto tp = number_after(name, "mp_rank_");
    if (name.starts_with("layer_") || name.find("expert_") != std::string::npos || !tp) {
      throw UserError(fmt::format("{} is of a pipeline stage or an expert, which is not read",
                                  (folder / name).string()),
                      "save the model without pipeline and expert parallelism");
    }
    if (*tp != 0) {
      throw UserError(fmt::format("{} is of tensor-parallel rank {}, which is not read",
                                  (folder / name).string(), *tp),
                      "save the model without tensor parallelism, or convert it by DeepSpeed");
    }
    const int64_t rank = number_after(name, "zero_pp_rank_").value_or(0);
    const auto [at, added] = (is_optim ? optim : model).emplace(rank, folder / name);
    require(added, "{} and {} are of the same rank", at->second.string(), name);
  }
  return {in_order(model, folder, kModelEnd), in_order(optim, folder, kOptimEnd)};
}

}  // namespace weft
