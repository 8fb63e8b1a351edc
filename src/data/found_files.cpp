// data/found_files.cpp: ignores files that are not data, then other splits; refuses ambiguous
// choices.
#include "data/found_files.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <bit>
#include <functional>
#include <map>
#include <numeric>

#include "base/error.h"
#include "data/formats.h"
#include "data/splits.h"
#include "io/byte_stream.h"

namespace weft {
namespace {

constexpr size_t kMostNamed = 6;

std::string name_of(const std::string& path) { return path.substr(path.rfind('/') + 1); }

std::string lower_case(std::string text) {
  for (char& c : text) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c;
  return text;
}

std::string some_names(const std::vector<std::string>& names) {
  const size_t shown = std::min(names.size(), kMostNamed);
  std::string text = fmt::format(
      "{}", fmt::join(names.begin(), names.begin() + static_cast<std::ptrdiff_t>(shown), ", "));
  if (shown < names.size()) text += fmt::format(" and {} more", names.size() - shown);
  return text;
}

bool is_hidden(std::string_view path) {
  return path.starts_with('.') || path.find("/.") != std::string_view::npos ||
         path.starts_with("__pycache__/") || path.find("/__pycache__/") != std::string_view::npos;
}

bool is_leftover(const std::string& name) {
  for (const char* ending : {"~", ".bak", ".tmp", ".orig", ".swp", ".part", ".partial"}) {
    if (name.ends_with(ending)) return true;
  }
  return name.starts_with('#') && name.ends_with('#');
}

// Whether a file describes a data set, by its usual names. `name` is in lower case.
bool is_about_data(const std::string& name) {
  for (const char* whole :
       {"dataset_info.json", "dataset_infos.json", "dataset_dict.json", "config.json",
        "metadata.csv", "metadata.json", "metadata.jsonl", "cmakelists.txt"}) {
    if (name == whole) return true;
  }
  const auto format = known_format(name);
  if (format && *format != RowFormat::kText) return false;
  for (const std::string_view word : {"readme", "license", "licence", "copying", "notice",
                                      "authors", "changelog", "citation", "requirements"}) {
    if (!name.starts_with(word)) continue;
    const std::string_view rest = std::string_view(name).substr(word.size());
    if (rest.empty() || rest[0] == '.' || rest[0] == '-') return true;
  }
  return false;
}

class Choice {
 public:
  Choice(const Search& search, std::vector<std::string> paths)
      : search_(search), paths_(std::move(paths)) {}

  FoundFiles choose() {
    // `weft inspect FOLDER` shows every data file of a folder.
    const bool is_of_run = search_.what.starts_with("data.");
    leave_out_others();
    if (is_of_run && !search_.is_pattern) leave_out_splits();
    refuse_none();
    if (is_of_run) refuse_doubles();
    if (is_of_run) refuse_formats();
    return {std::move(paths_), std::move(left_out_)};
  }

 private:
  std::string below_root(const std::string& path) const {
    return path.starts_with(search_.root) ? path.substr(search_.root.size()) : path;
  }

  std::vector<std::string> below_root(const std::vector<std::string>& paths) const {
    std::vector<std::string> names;
    for (const std::string& path : paths) names.push_back(below_root(path));
    return names;
  }

  std::string reason_against(const std::string& path) const {
    const std::string name = lower_case(name_of(path));
    if (is_hidden(below_root(path))) return "hidden";
    if (is_leftover(name)) return "backup or unfinished file";
    if (is_about_data(name)) return "not a data file";
    if (!search_.is_pattern && !known_format(path)) return "unknown extension";
    return "";
  }

  template <typename Reason>
  void leave_out(const Reason& reason) {
    std::vector<std::string> kept;
    for (const std::string& path : paths_) {
      const std::string against = reason(path);
      if (against.empty()) {
        kept.push_back(path);
      } else {
        left_out_.push_back({below_root(path), against});
      }
    }
    paths_ = std::move(kept);
  }

  // With data.format, a folder gives the files with the extension of that format, if there are any.
  void leave_out_others() {
    leave_out([this](const std::string& path) { return reason_against(path); });
    if (search_.is_pattern || search_.format == "auto") return;
    const auto has_ending = [this](const std::string& path) {
      return format_name(*known_format(path)) == search_.format;
    };
    if (std::none_of(paths_.begin(), paths_.end(), has_ending)) return;
    leave_out([&](const std::string& path) {
      return has_ending(path) ? "" : fmt::format("data.format is {}", search_.format);
    });
  }

  void leave_out_splits() {
    const std::vector<unsigned> splits = splits_of(below_root(paths_));
    const unsigned all = std::accumulate(splits.begin(), splits.end(), 0u, std::bit_or<>());
    const bool has_unnamed = std::count(splits.begin(), splits.end(), 0u) > 0;
    if (all == 0 || (!has_unnamed && std::has_single_bit(all))) return;
    const unsigned wanted = wanted_split(all);
    if (wanted == 0) refuse_splits(splits);
    size_t at = 0;
    leave_out([&](const std::string&) {
      const unsigned split = splits[at++];
      return (split & wanted) != 0 ? std::string() : describe_split(split);
    });
  }

  unsigned wanted_split(unsigned all) const {
    constexpr unsigned kTrain = 1, kValidation = 2, kTest = 4;
    if (search_.what != "data.eval") return all & kTrain;
    return (all & kValidation) != 0 ? kValidation : all & kTest;
  }

  static std::string describe_split(unsigned split) {
    if (split == 0) return "no split in its name";
    std::vector<std::string_view> names;
    for (size_t i = 0; i < std::size(kSplitNames); ++i) {
      if ((split >> i & 1) != 0) names.push_back(kSplitNames[i]);
    }
    return fmt::format("split {}", fmt::join(names, ", "));
  }

  [[noreturn]] void refuse_splits(const std::vector<unsigned>& splits) const {
    std::map<std::string, std::vector<std::string>> by_split;
    for (size_t i = 0; i < paths_.size(); ++i)
      by_split[describe_split(splits[i])].push_back(below_root(paths_[i]));
    throw UserError(
        fmt::format("{}: {} contains several splits, but none is named {}: {}", search_.what,
                    search_.place, search_.what == "data.eval" ? "validation or test" : "train",
                    list_groups(by_split)),
        "list the files, or give a pattern that matches them");
  }

  static std::string list_groups(const std::map<std::string, std::vector<std::string>>& groups) {
    std::string text;
    for (const auto& [group, names] : groups)
      text += fmt::format("{}{} ({})", text.empty() ? "" : "; ", some_names(names), group);
    return text;
  }

  void refuse_none() const {
    if (!paths_.empty()) return;
    const std::string others = fmt::format("{}", fmt::join(describe_left_out(left_out_), "; "));
    throw UserError(
        search_.is_pattern
            ? fmt::format("data: no file matches {}", search_.place)
            : fmt::format("data: the folder {} has no .txt, .jsonl, .csv, .parquet or .arrow file "
                          "(nor another supported one)",
                          search_.place),
        others.empty()
            ? ""
            : fmt::format("ignored: {}; a file that is listed explicitly is read", others));
  }

  void refuse_doubles() const {
    std::map<std::string, std::vector<std::string>> by_name;
    for (const std::string& path : paths_) {
      const std::string plain = is_packed(path) ? path.substr(0, path.rfind('.')) : path;
      by_name[plain].push_back(below_root(path));
    }
    std::erase_if(by_name, [](const auto& entry) { return entry.second.size() == 1; });
    if (by_name.empty()) return;
    const std::vector<std::string>& first = by_name.begin()->second;
    throw UserError(fmt::format("{}: {} contains the same file compressed and uncompressed: {}",
                                search_.what, search_.place, some_names(first)),
                    "remove one of them, or list the files to read");
  }

  void refuse_formats() const {
    std::map<std::string, std::vector<std::string>> by_format;
    for (const std::string& path : paths_) {
      by_format[std::string(format_name(row_format(path, search_.format)))].push_back(
          below_root(path));
    }
    if (by_format.size() == 1) return;
    throw UserError(
        fmt::format("{}: {} contains files of several formats: {}", search_.what, search_.place,
                    list_groups(by_format)),
        "give a pattern that matches one format, such as FOLDER/**/*.jsonl, or list the files");
  }

  const Search& search_;
  std::vector<std::string> paths_;
  std::vector<LeftOut> left_out_;
};

}  // namespace

FoundFiles choose_files(const Search& search, const std::vector<std::string>& paths) {
  return Choice(search, paths).choose();
}

std::vector<std::string> describe_left_out(const std::vector<LeftOut>& files) {
  std::map<std::string, std::vector<std::string>> by_reason;
  for (const LeftOut& file : files) by_reason[file.reason].push_back(file.path);
  std::vector<std::string> lines;
  for (const auto& [reason, names] : by_reason)
    lines.push_back(fmt::format("{}: {}", some_names(names), reason));
  return lines;
}

}  // namespace weft
