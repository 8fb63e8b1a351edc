// base/available_memory.cpp: /proc/meminfo, the cgroup file systems, getrlimit.
#include "base/available_memory.h"

#include <fmt/core.h>
#include <sys/resource.h>

#include <algorithm>
#include <charconv>
#include <fstream>
#include <sstream>
#include <system_error>
#include <vector>

namespace weft {
namespace {

namespace fs = std::filesystem;

constexpr double kGib = 1024.0 * 1024 * 1024;

// Files in these file systems report no size and may vanish; empty where the file is missing.
std::string read_text(const fs::path& path) {
  std::ostringstream text;
  std::ifstream in(path);
  if (in) text << in.rdbuf();
  return text.str();
}

std::optional<int64_t> parse_number(std::string_view text) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end == text.data()) return std::nullopt;
  return value;
}

// "key 123" on a separate line.
int64_t stat_value(std::string_view text, std::string_view key) {
  std::istringstream lines{std::string(text)};
  std::string name;
  for (int64_t value = 0; lines >> name >> value;) {
    if (name == key) return value;
  }
  return 0;
}

// Where one version of cgroups is mounted, and which of its files hold which number.
struct Hierarchy {
  bool is_v2 = false;
  fs::path mount;     // below the root of the test or of the machine
  fs::path inside;    // of the mount: the hierarchy's path that it shows
  std::string group;  // of this process, from the hierarchy's root
};

std::vector<std::string> split(const std::string& text, char by) {
  std::vector<std::string> words;
  std::istringstream in(text);
  for (std::string word; std::getline(in, word, by);) words.push_back(word);
  return words;
}

bool has_word(const std::string& list, std::string_view word) {
  const auto words = split(list, ',');
  return std::find(words.begin(), words.end(), word) != words.end();
}

// "36 35 0:30 /shown /sys/fs/cgroup/memory rw,.. shared:9 - cgroup cgroup rw,memory"
std::vector<Hierarchy> find_mounts(const fs::path& root) {
  std::vector<Hierarchy> found;
  for (const std::string& line : split(read_text(root / "proc/self/mountinfo"), '\n')) {
    const std::vector<std::string> words = split(line, ' ');
    const auto dash = std::find(words.begin(), words.end(), "-");
    if (words.size() < 5 || words.end() - dash < 4) continue;
    const bool is_v2 = dash[1] == "cgroup2";
    if (!is_v2 && (dash[1] != "cgroup" || !has_word(dash[3], "memory"))) continue;
    found.push_back({is_v2, root / fs::path(words[4]).relative_path(), words[3], ""});
  }
  return found;
}

// The group of this process: "0::/a/b" of version 2, "4:memory:/a/b" of version 1.
std::string own_group(const std::string& text, bool is_v2) {
  for (const std::string& line : split(text, '\n')) {
    const size_t first = line.find(':'), second = line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    if (is_v2 ? controllers.empty() : has_word(controllers, "memory"))
      return line.substr(second + 1);
  }
  return "/";
}

// What one group leaves free. Its usage excludes what the kernel can reclaim: cached files (except
// shared memory) and, where version 2 lists them, directory caches.
MemoryBound left_in(const fs::path& group, const char* limit_file, bool is_v2) {
  const auto limit = parse_number(read_text(group / limit_file));
  if (!limit) return {};  // "max", or no such file
  const auto used =
      parse_number(read_text(group / (is_v2 ? "memory.current" : "memory.usage_in_bytes")));
  const std::string stat = read_text(group / "memory.stat");
  const char* prefix = is_v2 ? "" : "total_";
  const int64_t cached = stat_value(stat, fmt::format("{}inactive_file", prefix)) +
                         stat_value(stat, fmt::format("{}active_file", prefix)) +
                         (is_v2 ? stat_value(stat, "slab_reclaimable") : 0);
  const int64_t in_use = std::max<int64_t>(0, used.value_or(0) - cached);
  return {std::max<int64_t>(0, *limit - in_use),
          fmt::format("the cgroup's limit of {:.1f} GiB less {:.1f} GiB in use ({})",
                      static_cast<double>(*limit) / kGib, static_cast<double>(in_use) / kGib,
                      (group / limit_file).string())};
}

void take_smaller(MemoryBound* bound, MemoryBound other) {
  if (other.bytes < bound->bytes) *bound = std::move(other);
}

// From the process's group up to the mount's root: each group limits all below it. A container sees
// its own group's mount, but sometimes the outer name: then the mount's root is its group.
MemoryBound left_in_hierarchy(const Hierarchy& h) {
  const fs::path relative = fs::path(h.group).lexically_relative(h.inside);
  fs::path group = h.mount;
  const bool is_below = !relative.empty() && *relative.begin() != "..";
  std::error_code fault;  // a group we may not inspect imposes no limit
  if (is_below && relative != "." && fs::is_directory(h.mount / relative, fault))
    group = h.mount / relative;
  MemoryBound bound;
  for (;; group = group.parent_path()) {
    if (h.is_v2) {
      take_smaller(&bound, left_in(group, "memory.max", true));
      take_smaller(&bound, left_in(group, "memory.high", true));  // above it a group is throttled
    } else {
      take_smaller(&bound, left_in(group, "memory.limit_in_bytes", false));
    }
    if (group == h.mount || !group.has_relative_path()) return bound;
  }
}

MemoryBound left_of(int resource, int64_t used, const char* name) {
  rlimit limit{};
  if (::getrlimit(resource, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return {};
  const auto most = static_cast<int64_t>(
      std::min<rlim_t>(limit.rlim_cur, std::numeric_limits<int64_t>::max() - 1));
  return {std::max<int64_t>(0, most - used),
          fmt::format("{} of {:.1f} GiB", name, static_cast<double>(most) / kGib)};
}

}  // namespace

std::optional<int64_t> parse_kib_field(std::string_view text, std::string_view key) {
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    const std::string_view line = text.substr(at, end - at);
    at = end + 1;
    if (!line.starts_with(key) || line.size() <= key.size() || line[key.size()] != ':') continue;
    const size_t digit = line.find_first_of("0123456789");
    const auto kib = parse_number(digit == std::string_view::npos ? "" : line.substr(digit));
    if (kib) return *kib * 1024;
  }
  return std::nullopt;
}

MemoryBound available_in_cgroups(const fs::path& root) {
  const std::string groups = read_text(root / "proc/self/cgroup");
  MemoryBound bound;
  for (Hierarchy& h : find_mounts(root)) {
    h.group = own_group(groups, h.is_v2);
    take_smaller(&bound, left_in_hierarchy(h));
  }
  return bound;
}

MemoryBound available_memory(const fs::path& root) {
  MemoryBound bound = available_in_cgroups(root);
  const auto machine = parse_kib_field(read_text(root / "proc/meminfo"), "MemAvailable");
  if (machine) take_smaller(&bound, {*machine, "MemAvailable of /proc/meminfo"});
  return bound;
}

ProcessBounds available_to_process() {
  const std::string status = read_text("/proc/self/status");
  return {left_of(RLIMIT_AS, parse_kib_field(status, "VmSize").value_or(0), "ulimit -v"),
          left_of(RLIMIT_DATA, parse_kib_field(status, "VmData").value_or(0), "ulimit -d")};
}

}  // namespace weft
