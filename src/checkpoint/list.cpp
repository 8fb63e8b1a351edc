// checkpoint/list.cpp: the checkpoints of a run directory: which are whole, which may go.
#include <algorithm>
#include <charconv>

#include "base/error.h"
#include "base/log.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/index.h"
#include "checkpoint/replace_folder.h"

namespace weft {
namespace {

namespace fs = std::filesystem;

// The step of step-00000100 and of step-00000100.writing; -1 for any other name.
int64_t step_of(const std::string& name) {
  if (!name.starts_with("step-")) return -1;
  int64_t step = -1;
  const char* end = name.data() + name.size();
  const auto [at, fault] = std::from_chars(name.data() + 5, end, step);
  const std::string_view rest(at, static_cast<size_t>(end - at));
  return fault == std::errc() && (rest.empty() || rest == ".writing") ? step : -1;
}

struct Entry {
  int64_t step;
  fs::path path;
  bool whole;
};

// Every folder step-N and step-N.writing, by step.
std::vector<Entry> scan(const fs::path& run_dir) {
  std::vector<Entry> entries;
  std::error_code absent;
  for (const auto& e : fs::directory_iterator(run_dir / "checkpoints", absent)) {
    const std::string name = e.path().filename().string();
    const int64_t step = step_of(name);
    if (step < 0 || !e.is_directory()) continue;
    entries.push_back({step, e.path(), !name.ends_with(".writing") && is_checkpoint(e.path())});
  }
  std::sort(entries.begin(), entries.end(),
            [](const Entry& a, const Entry& b) { return a.step < b.step; });
  return entries;
}

// COMMITTED goes first: a deletion cut short leaves no half checkpoint that looks whole.
void remove_checkpoint(const fs::path& folder) {
  remove_folder(folder / kCommittedFile);
  remove_folder(folder);
}

}  // namespace

fs::path checkpoint_path(const fs::path& run_dir, int64_t step) {
  return run_dir / "checkpoints" / fmt::format("step-{:08}", step);
}

bool is_checkpoint(const fs::path& folder) {
  std::error_code absent;
  return fs::is_regular_file(folder / kCommittedFile, absent);
}

std::vector<fs::path> list_checkpoints(const fs::path& run_dir) {
  std::vector<fs::path> whole;
  for (const Entry& e : scan(run_dir)) {
    if (e.whole) whole.push_back(e.path);
  }
  return whole;
}

std::optional<fs::path> find_sound_checkpoint(const fs::path& run_dir) {
  std::vector<fs::path> whole = list_checkpoints(run_dir);
  for (; !whole.empty(); whole.pop_back()) {
    try {
      CheckpointReader(whole.back()).verify();
      return whole.back();
    } catch (const UserError& e) {
      log_warning("{}", e.what());
    }
  }
  return std::nullopt;
}

void prune_checkpoints(const fs::path& run_dir, int64_t keep, int64_t newest) {
  const std::vector<Entry> entries = scan(run_dir);
  std::vector<int64_t> whole;
  for (const Entry& e : entries) {
    if (e.whole && e.step <= newest) whole.push_back(e.step);
  }
  if (whole.empty()) return;
  const auto kept = std::min(whole.size(), static_cast<size_t>(std::max<int64_t>(keep, 1)));
  const int64_t oldest = whole[whole.size() - kept];
  for (const Entry& e : entries) {
    const bool leftover = !e.whole && e.step < whole.back();  // nobody writes an older step now
    if (leftover || (e.whole && e.step < oldest)) remove_checkpoint(e.path);
  }
}

std::vector<fs::path> remove_checkpoints_after(const fs::path& run_dir, int64_t step) {
  std::vector<fs::path> gone;
  const std::vector<Entry> entries = scan(run_dir);
  for (auto e = entries.rbegin(); e != entries.rend() && e->step > step; ++e) {
    remove_checkpoint(e->path);
    gone.push_back(e->path);
  }
  return gone;
}

}  // namespace weft
