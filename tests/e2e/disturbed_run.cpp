// tests/e2e/disturbed_run.cpp: what a run left, and the processes of one that goes on.
#include "tests/e2e/disturbed_run.h"

#include <dirent.h>
#include <fmt/core.h>
#include <gtest/gtest.h>

#include <set>
#include <sstream>

namespace weft::testing {

bool is_any_left(const TinyRun& run) {
  bool is_left = false;
  DIR* proc = ::opendir("/proc");
  while (const dirent* entry = ::readdir(proc)) {
    if (std::atoi(entry->d_name) <= 0) continue;
    const std::string path = fmt::format("/proc/{}/cmdline", entry->d_name);
    is_left |= contains(slurp(path), run.file().string());
  }
  ::closedir(proc);
  return is_left;
}

size_t num_steps(const TinyRun& run, const std::string& name) {
  return metric_texts(run.dir(name), "loss").size();
}

size_t num_events(const TinyRun& run, const std::string& name, const char* event) {
  if (!std::filesystem::exists(run.dir(name) / "events.jsonl")) return 0;
  return event_lines(run.dir(name), event).size();
}

std::vector<int64_t> generations_of(const TinyRun& run, const std::string& name) {
  std::vector<int64_t> all;
  std::istringstream text(slurp(run.dir(name) / "events.jsonl"));
  for (std::string line; std::getline(text, line);) {
    const Json event = parse_json(line, "events");
    if (const Json* generation = event.find("generation")) all.push_back(generation->as_int());
  }
  return all;
}

void expect_same_run(const TinyRun& run, const std::string& a, const std::string& b) {
  for (const char* part : {"", "final", "checkpoints/best"})
    EXPECT_EQ(hash_of(run.dir(a) / part), hash_of(run.dir(b) / part)) << b << " " << part;
  for (const char* key : {"step", "epoch", "loss", "grad_norm", "lr", "tokens", "target_tokens",
                          "eval_loss", "mean_loss"})
    EXPECT_EQ(metric_texts(run.dir(a), key), metric_texts(run.dir(b), key)) << b << " " << key;
  const auto names = [&](const std::string& name) {
    std::set<std::string> found;
    for (const auto& entry : std::filesystem::directory_iterator(run.dir(name) / "checkpoints"))
      found.insert(entry.path().filename());
    return found;
  };
  EXPECT_EQ(names(a), names(b));
}

std::vector<std::string> sets_of(const TinyRun& run, const std::string& name,
                                 const std::vector<std::string>& more) {
  std::vector<std::string> sets = {"name=" + name,
                                   "train.steps=200",
                                   "checkpoint.every=30",
                                   "checkpoint.keep=30",
                                   "train.eval_every=70",
                                   "launch.max_restarts=-1",
                                   "data.eval=[" + (run / "eval.txt").string() + "]"};
  sets.insert(sets.end(), more.begin(), more.end());
  return sets;
}

}  // namespace weft::testing
