// tests/e2e/tiny_run.h: a run file with model, rows and run directory in a temporary folder.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "base/json.h"
#include "tests/faults/preload.h"
#include "tests/program.h"

namespace weft::testing {

// 2 layers, hidden 32, GQA, bytes; 42 rows of unequal length in train.txt, 12 in eval.txt.
// Defaults of the run: 6 steps of 8 rows, two passes each, one thread, random weights.
class TinyRun {
 public:
  TinyRun();

  std::filesystem::path operator/(const std::string& name) const { return folder_ / name; }
  std::filesystem::path file() const { return folder_ / "run.yaml"; }
  std::filesystem::path dir(const std::string& name = "tiny") const {
    return folder_ / ("runs/" + name);
  }
  std::filesystem::path checkpoint(int64_t step, const std::string& name = "tiny") const;

  // config.json with one key changed.
  void change_config(const std::string& key, Json value) const;
  void write(const std::string& name, const std::string& text) const;  // a file of the folder

  // `weft COMMAND run.yaml --set ... words`: sets are "section.key=value".
  std::vector<std::string> words(const std::string& command, const std::vector<std::string>& sets,
                                 const std::vector<std::string>& more = {}) const;
  Ended train(const std::vector<std::string>& sets = {},
              const std::vector<std::string>& more = {}) const;
  // The same, and a failure where it does not end with 0.
  void train_well(const std::vector<std::string>& sets = {},
                  const std::vector<std::string>& more = {}) const;

 private:
  TemporaryFolder folder_;
};

// A named variant of a run, for parameterized tests.
struct Variant {
  const char* name;
  std::vector<std::string> sets;
};
inline std::ostream& operator<<(std::ostream& out, const Variant& v) { return out << v.name; }
inline const auto kVariantName = [](const auto& p) { return std::string(p.param.name); };

// For a run that other processes watch or join: every step waits 20 ms, so the run needs little
// processor time.
inline StartOptions slowly(StartOptions options = {}) {
  options.env.merge(fault_env("write:wait20:metrics.jsonl"));
  return options;
}

// Sets of a run, and more, which win.
std::vector<std::string> with(std::vector<std::string> sets, const std::vector<std::string>& more);

// Every row has its own loss line; `key` as text, so that equal text means equal bits.
std::vector<std::string> metric_texts(const std::filesystem::path& run_dir, const std::string& key);
std::vector<Json> metric_lines(const std::filesystem::path& run_dir);
std::vector<Json> event_lines(const std::filesystem::path& run_dir, const std::string& event);
// Every file below a directory with its bytes. The lock's file holds nothing.
std::map<std::string, std::string> bytes_below(const std::filesystem::path& dir);
void flip_in_the_middle(const std::filesystem::path& file);  // a bit of it
// What `weft hash` prints.
std::string hash_of(const std::filesystem::path& path);
std::string weights_of(const std::filesystem::path& path);  // the line of these; "none"

}  // namespace weft::testing
