// tests/e2e/tiny_run.cpp: the files of a tiny run, and reading back its results.
#include "tests/e2e/tiny_run.h"

#include <fmt/core.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <sstream>

#include "tests/tiny_config.h"

namespace weft::testing {
namespace {

// Rows that differ in words and length; row 5 is empty.
std::string rows(int count, int salt) {
  std::string text;
  for (int i = 0; i < count; ++i) {
    std::string line;
    for (int w = 0; w < (i * 7 + salt) % 11 && i != 5; ++w) {
      line += fmt::format("{}{} ", "abcdefghij"[(i + w * salt) % 10], (i * w + salt) % 100);
    }
    text += (i == 5 ? "" : "row " + line) + "\n";
  }
  return text;
}

// A folder in memory where possible: runs sync their files, and waiting for the disk is not what is
// tested here.
const bool kInMemory = [] {
  std::error_code none;
  const auto space = std::filesystem::space("/dev/shm", none);
  const bool has_room = !none && space.available > (uint64_t{2} << 30);
  return has_room && ::setenv("TMPDIR", "/dev/shm", 0) == 0;
}();

}  // namespace

TinyRun::TinyRun() {
  std::filesystem::create_directory(folder_ / "model");
  write("model/config.json", kTinyConfig);
  write("train.txt", rows(43, 3));
  write("eval.txt", rows(12, 5));
  write("run.yaml", fmt::format(R"(name: tiny
storage: {0}/runs
seed: 7
model:
  path: {0}/model
  init: random
data:
  train: [{0}/train.txt]
  tokenizer: bytes
  seq_length: 24
train:
  steps: 6
  global_batch: 8
  micro_batch: 4
  lr: 1.0e-2
checkpoint:
  every: 2
  keep: 3
launch:
  threads: 1
)",
                                folder_.path().string()));
}

std::filesystem::path TinyRun::checkpoint(int64_t step, const std::string& name) const {
  return dir(name) / fmt::format("checkpoints/step-{:08}", step);
}

void TinyRun::change_config(const std::string& key, Json value) const {
  Json config = parse_json(slurp(folder_ / "model/config.json"), "config.json");
  config.set(key, std::move(value));
  write("model/config.json", config.dump(2));
}

void TinyRun::write(const std::string& name, const std::string& text) const {
  std::ofstream(folder_ / name, std::ios::binary) << text;
}

std::vector<std::string> TinyRun::words(const std::string& command,
                                        const std::vector<std::string>& sets,
                                        const std::vector<std::string>& more) const {
  std::vector<std::string> all = {command, file().string()};
  for (const std::string& set : sets) {
    all.push_back("--set");
    all.push_back(set);
  }
  all.insert(all.end(), more.begin(), more.end());
  return all;
}

Ended TinyRun::train(const std::vector<std::string>& sets,
                     const std::vector<std::string>& more) const {
  return run_to_end(words("train", sets, more));
}

void TinyRun::train_well(const std::vector<std::string>& sets,
                         const std::vector<std::string>& more) const {
  const Ended ended = train(sets, more);
  EXPECT_EQ(ended.exit_code, 0) << ended.err;
}

std::vector<Json> metric_lines(const std::filesystem::path& run_dir) {
  std::vector<Json> lines;
  std::istringstream text(slurp(run_dir / "metrics.jsonl"));
  for (std::string line; std::getline(text, line);) lines.push_back(parse_json(line, "metrics"));
  return lines;
}

std::vector<std::string> metric_texts(const std::filesystem::path& run_dir,
                                      const std::string& key) {
  std::vector<std::string> found;
  std::istringstream text(slurp(run_dir / "metrics.jsonl"));
  const std::string mark = "\"" + key + "\":";
  for (std::string line; std::getline(text, line);) {
    const size_t at = line.find(mark);
    if (at == std::string::npos) continue;
    const size_t begin = line.find_first_not_of(' ', at + mark.size());
    found.push_back(line.substr(begin, line.find_first_of(",}", begin) - begin));
  }
  return found;
}

std::vector<Json> event_lines(const std::filesystem::path& run_dir, const std::string& event) {
  std::vector<Json> lines;
  std::istringstream text(slurp(run_dir / "events.jsonl"));
  for (std::string line; std::getline(text, line);) {
    Json parsed = parse_json(line, "events");
    if (parsed.at("event").as_string() == event) lines.push_back(std::move(parsed));
  }
  return lines;
}

std::map<std::string, std::string> bytes_below(const std::filesystem::path& dir) {
  std::map<std::string, std::string> files;
  for (const auto& e : std::filesystem::recursive_directory_iterator(dir)) {
    if (e.path().filename() == ".lock") continue;
    files[e.path().string()] = e.is_regular_file() ? slurp(e.path()) : "folder";
  }
  return files;
}

std::vector<std::string> with(std::vector<std::string> sets, const std::vector<std::string>& more) {
  sets.insert(sets.end(), more.begin(), more.end());
  return sets;
}

void flip_in_the_middle(const std::filesystem::path& file) {
  std::string bytes = slurp(file);
  bytes[bytes.size() / 2] = static_cast<char>(bytes[bytes.size() / 2] ^ 1);
  std::ofstream(file, std::ios::binary) << bytes;
}

std::string hash_of(const std::filesystem::path& path) {
  const Ended ended = run_to_end({"hash", path.string()});
  EXPECT_EQ(ended.exit_code, 0) << ended.err;
  EXPECT_TRUE(contains(ended.out, "weights ")) << ended.out;
  return ended.out;
}

std::string weights_of(const std::filesystem::path& path) {
  const std::string text = hash_of(path);
  const size_t at = text.find("weights ");
  return at == std::string::npos ? "none" : text.substr(at, text.find('\n', at) - at);
}

}  // namespace weft::testing
