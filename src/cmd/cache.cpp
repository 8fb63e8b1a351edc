// cmd/cache.cpp: weft cache: lists and removes what is kept between runs.
#include <fmt/chrono.h>
#include <sys/stat.h>

#include <algorithm>

#include "base/cache_folder.h"
#include "base/printable.h"
#include "cmd/command.h"
#include "data/cache_store.h"
#include "data/token_cache.h"
#include "track/progress.h"

namespace weft {
namespace {

namespace fs = std::filesystem;

// Speeds (weft doctor --measure) and chosen matrix product algorithms, one file each.
struct Measured {
  fs::path path;
  int64_t bytes;
  std::time_t time;
};

bool is_measured(const std::string& name) {
  return name == "speeds.json" || name == "speeds-gpu.json" ||
         (name.starts_with("gemm-") && name.ends_with(".txt"));
}

std::vector<Measured> list_measured() {
  std::vector<Measured> found;
  std::error_code bad;
  for (fs::directory_iterator at(cache_folder(), bad), end; !bad && at != end; at.increment(bad)) {
    struct stat info {};
    if (!is_measured(at->path().filename().string()) || ::lstat(at->path().c_str(), &info) != 0 ||
        !S_ISREG(info.st_mode))
      continue;
    found.push_back({at->path(), static_cast<int64_t>(info.st_size), info.st_mtime});
  }
  std::sort(found.begin(), found.end(),
            [](const Measured& a, const Measured& b) { return a.path < b.path; });
  return found;
}

std::string show_time(std::time_t time) {
  return fmt::format("{:%Y-%m-%d %H:%M}", fmt::localtime(time));
}

std::string describe_cache(const CacheEntry& c) {
  std::string text = c.files.empty() ? "of an older version" : printable_line(c.files);
  if (c.num_rows > 0) text += fmt::format(", {} rows", format_count(double(c.num_rows)));
  return text + (c.is_open ? " (in use)" : "");
}

void print_list(const std::vector<CacheEntry>& caches, const std::vector<Measured>& measured) {
  int64_t tokens = 0, total = 0;
  for (const CacheEntry& c : caches) tokens += c.bytes;
  total = tokens;
  fmt::print("token caches in {}: {}, {} of at most {} (WEFT_CACHE_MAX)\n",
             printable_line(cache_root().string()), caches.size(), format_bytes(tokens),
             format_bytes(max_cache_bytes()));
  for (const CacheEntry& c : caches) {
    fmt::print("  {:>10}  used {}  {}  {}\n", format_bytes(c.bytes),
               show_time(c.last_used_ns / 1'000'000'000), c.folder.filename().string(),
               describe_cache(c));
  }
  fmt::print("speeds in {}: {}\n", printable_line(cache_folder().string()), measured.size());
  for (const Measured& m : measured) {
    total += m.bytes;
    fmt::print("  {:>10}  made {}  {}\n", format_bytes(m.bytes), show_time(m.time),
               printable_line(m.path.filename().string()));
  }
  fmt::print("total {}\n", format_bytes(total));
}

Json caches_to_json(const std::vector<CacheEntry>& caches, const std::vector<Measured>& measured) {
  int64_t total = 0;
  Json::Array tokens, speeds;
  for (const CacheEntry& c : caches) {
    total += c.bytes;
    tokens.push_back(Json(Json::Object{{"path", c.folder.string()},
                                       {"bytes", c.bytes},
                                       {"last_used", c.last_used_ns / 1'000'000'000},
                                       {"in_use", c.is_open},
                                       {"files", c.files},
                                       {"rows", c.num_rows}}));
  }
  for (const Measured& m : measured) {
    total += m.bytes;
    speeds.push_back(Json(
        Json::Object{{"path", m.path.string()}, {"bytes", m.bytes}, {"made", int64_t{m.time}}}));
  }
  return Json(Json::Object{{"folder", cache_root().string()},
                           {"max", max_cache_bytes()},
                           {"caches", std::move(tokens)},
                           {"speeds", std::move(speeds)},
                           {"total", total}});
}

int clear(const std::vector<CacheEntry>& caches, const std::vector<Measured>& measured) {
  int64_t freed = 0;
  size_t removed = 0, removed_speeds = 0, failed = 0;
  for (const CacheEntry& c : caches) {
    const Removal removal = remove_cache(c.folder);
    if (removal == Removal::kDone) {
      freed += c.bytes;
      ++removed;
      continue;
    }
    failed += removal == Removal::kFailed;
    fmt::print("kept {}: {}\n", printable_line(c.folder.string()),
               removal == Removal::kInUse ? "a process has it open" : "it could not be removed");
  }
  for (const Measured& m : measured) {
    std::error_code bad;
    if (fs::remove(m.path, bad)) {
      freed += m.bytes;
      ++removed_speeds;
    }
    failed += bad ? 1 : 0;
    if (bad) fmt::print("kept {}: {}\n", printable_line(m.path.string()), bad.message());
  }
  fmt::print("removed {} token cache{} and {} of speeds, {}\n", removed, removed == 1 ? "" : "s",
             removed_speeds, format_bytes(freed));
  if (removed_speeds > 0) fmt::print("`weft doctor --measure` measures speeds again\n");
  return failed == 0 ? 0 : 1;
}

}  // namespace

RunCommand add_cache(CommandOptions& app) {
  struct Words {
    bool clear = false, json = false;
  };
  auto w = std::make_shared<Words>();
  auto* clears = app.add_flag("--clear", w->clear, "remove everything that no process has open");
  app.add_flag("--json", w->json, "as JSON")->excludes(clears);
  return [w] {
    const std::vector<CacheEntry> caches = list_caches(cache_root());
    const std::vector<Measured> measured = list_measured();
    if (w->clear) return clear(caches, measured);
    if (w->json)
      fmt::print("{}\n", printable_json(caches_to_json(caches, measured).dump(2)));
    else
      print_list(caches, measured);
    return 0;
  };
}

}  // namespace weft
