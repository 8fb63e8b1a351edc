// tests/e2e/damage_test.cpp: every kind of damage to every file of a checkpoint is found and named.
#include <fmt/core.h>
#include <gtest/gtest.h>

#include <cctype>
#include <cstring>
#include <fstream>
#include <memory>
#include <optional>
#include <set>

#include "base/hash.h"
#include "tests/e2e/tiny_run.h"

namespace weft::testing {
namespace {

namespace fs = std::filesystem;

// Steps 2, 4 and 6 of two ranks, each with half of every bucket, and a best/; not finished.
struct TwoRankRun : TinyRun {
  TwoRankRun() {
    train_well(with({"data.eval=[" + (*this / "eval.txt").string() + "]", "train.eval_every=2"}));
    fs::remove_all(dir() / "final");
  }
  static std::vector<std::string> with(std::vector<std::string> sets) {
    sets.insert(sets.end(), {"parallel.dp=2", "parallel.shard=zero3"});
    return sets;
  }
  Ended resume(const std::vector<std::string>& more = {}) const {
    return train(with({"data.eval=[" + (*this / "eval.txt").string() + "]", "train.eval_every=2",
                       "train.steps=8"}),
                 more);
  }
  // One process, which needs every slice.
  Ended resume_alone(const fs::path& from) const {
    return train({"data.eval=[" + (*this / "eval.txt").string() + "]", "train.eval_every=2",
                  "train.steps=8"},
                 {"--resume", from.string()});
  }
  fs::path rank_file(int64_t step, int rank) const {
    return checkpoint(step) / fmt::format("rank-{:05}.safetensors", rank);
  }
};

void write_bytes(const fs::path& file, const std::string& bytes) {
  std::ofstream(file, std::ios::binary) << bytes;
}

// A file for the time of a test with these bytes; none: it is gone.
class Damage {
 public:
  Damage(fs::path file, const std::optional<std::string>& bytes)
      : file_(std::move(file)), whole_(slurp(file_)) {
    if (bytes) {
      write_bytes(file_, *bytes);
    } else {
      fs::remove(file_);
    }
  }
  ~Damage() { write_bytes(file_, whole_); }
  Damage(const Damage&) = delete;
  Damage& operator=(const Damage&) = delete;

 private:
  fs::path file_;
  std::string whole_;
};

std::string flipped(std::string bytes, size_t at) {
  bytes[at] = static_cast<char>(bytes[at] ^ 4);
  return bytes;
}

// Every way to damage a file, with a name.
std::vector<std::pair<std::string, std::optional<std::string>>> ways(const fs::path& file) {
  const std::string whole = slurp(file);
  std::vector<std::pair<std::string, std::optional<std::string>>> all = {
      {"deleted", std::nullopt},
      {"emptied", ""},
      {"cut", whole.substr(0, whole.size() - 1)},
      {"first byte", flipped(whole, 0)},
      {"middle", flipped(whole, whole.size() / 2)},
      {"last byte", flipped(whole, whole.size() - 1)}};
  if (file.extension() == ".safetensors") {
    uint64_t header = 0;
    std::memcpy(&header, whole.data(), sizeof header);
    all.emplace_back("header", flipped(whole, 30));
    all.emplace_back("first slice", flipped(whole, 8 + header));
    all.emplace_back("half", whole.substr(0, whole.size() / 2));
    all.emplace_back("longer", whole + "x");
  }
  return all;
}

void expect_found(const TwoRankRun& run, const fs::path& file, const std::string& how) {
  const fs::path folder = file.parent_path();
  const std::string what = file.string() + " " + how;
  const std::string name = file.filename().string();
  const bool is_gone = name == "COMMITTED" && how == "deleted";  // it is no checkpoint then
  for (const fs::path& path : {folder, run.dir()}) {
    const Ended ended = run_to_end({"inspect", "--verify", path.string()});
    EXPECT_EQ(ended.exit_code, is_gone && path == folder ? 2 : 1) << what << ended.out << ended.err;
    if (!is_gone) expect_parts(ended.err, {name});
  }
  const Ended resumed = run.resume_alone(folder);
  EXPECT_EQ(resumed.exit_code, 2) << what << resumed.err;
  if (!is_gone) expect_parts(resumed.err, {name});
}

class DamagedFile : public ::testing::TestWithParam<const char*> {
 protected:
  static void SetUpTestSuite() { run_ = std::make_unique<TwoRankRun>(); }
  static void TearDownTestSuite() { run_.reset(); }

  static std::unique_ptr<TwoRankRun> run_;
};
std::unique_ptr<TwoRankRun> DamagedFile::run_;

TEST_P(DamagedFile, IsFoundAndNamedWhateverTheDamage) {
  const fs::path file = run_->checkpoint(6) / GetParam();
  const auto before = bytes_below(run_->dir());
  for (const auto& [how, bytes] : ways(file)) {
    const Damage damage(file, bytes);
    expect_found(*run_, file, how);
  }
  EXPECT_EQ(bytes_below(run_->dir()), before);
}

const std::vector<const char*> kCheckpointFiles = {"COMMITTED",
                                                   "config.json",
                                                   "generation_config.json",
                                                   "index.json",
                                                   "rank-00000.safetensors",
                                                   "rank-00001.safetensors",
                                                   "state.json",
                                                   "tokenizer.json",
                                                   "tokenizer_config.json"};

INSTANTIATE_TEST_SUITE_P(All, DamagedFile, ::testing::ValuesIn(kCheckpointFiles),
                         [](const auto& p) {
                           std::string name = p.param;
                           for (char& c : name) c = std::isalnum(c) != 0 ? c : '_';
                           return name;
                         });

TEST(Damage, EveryFileOfACheckpointIsCovered) {
  const TwoRankRun run;
  const Ended sound = run_to_end({"inspect", "--verify", run.dir().string()});
  EXPECT_EQ(sound.exit_code, 0) << sound.err;
  expect_parts(sound.out, {"step-00000006", "best", "sound: true"});
  std::set<std::string> files;
  for (const auto& entry : fs::directory_iterator(run.checkpoint(6)))
    files.insert(entry.path().filename());
  EXPECT_EQ(files, std::set<std::string>(kCheckpointFiles.begin(), kCheckpointFiles.end()));
}

TEST(Damage, HashAndVerifyNameASliceOfBest) {
  const TwoRankRun run;
  const fs::path best = run.dir() / "checkpoints/best";
  flip_in_the_middle(best / "rank-00001.safetensors");
  for (const std::vector<std::string>& words :
       {std::vector<std::string>{"hash", best.string()},
        std::vector<std::string>{"inspect", "--verify", best.string()},
        std::vector<std::string>{"inspect", "--verify", run.dir().string()}}) {
    const Ended ended = run_to_end(words);
    EXPECT_EQ(ended.exit_code, words[0] == "hash" ? 2 : 1) << ended.err;
    expect_parts(ended.err, {"best/rank-00001.safetensors", "tensor \"", "elements "});
  }
  const Ended side = run_to_end({"hash", run.checkpoint(4).string()});
  EXPECT_EQ(side.exit_code, 0) << side.err;
  flip_in_the_middle(run.checkpoint(4) / "config.json");
  const Ended damaged = run_to_end({"hash", run.checkpoint(4).string()});
  EXPECT_EQ(damaged.exit_code, 2) << damaged.out;
  expect_parts(damaged.err, {"config.json"});
}

// Only one of two ranks reads the slice: both start again from the checkpoint before.
TEST(Damage, OneRankFindsItAndAllTakeTheOneBefore) {
  const TwoRankRun whole, run;
  ASSERT_EQ(whole.resume().exit_code, 0);
  const std::string bytes = slurp(run.rank_file(6, 1));
  write_bytes(run.rank_file(6, 1), flipped(bytes, bytes.size() - 1));
  const Ended ended = run.resume({"--quiet"});
  EXPECT_EQ(ended.exit_code, 0) << ended.err;
  expect_parts(ended.err, {"step-00000006/rank-00001.safetensors", "tensor \"", "skipped",
                           "step-00000006.damaged"});
  const auto starts = event_lines(run.dir(), "started");
  ASSERT_FALSE(starts.empty());
  EXPECT_EQ(starts.back().at("from").as_string(), run.checkpoint(4).string());
  const auto damaged = event_lines(run.dir(), "damaged");
  ASSERT_EQ(damaged.size(), 1u);
  EXPECT_TRUE(contains(damaged[0].at("message").as_string(), "rank-00001.safetensors"));
  EXPECT_TRUE(fs::exists(run.checkpoint(6).string() + ".damaged/COMMITTED"));
  EXPECT_EQ(hash_of(run.dir()), hash_of(whole.dir()));
}

TEST(Damage, WhereAllAreDamagedNothingIsTrained) {
  const TwoRankRun run;
  for (const int step : {2, 4, 6}) {
    const fs::path file = run.rank_file(step, step == 4 ? 0 : 1);
    const std::string bytes = slurp(file);
    write_bytes(file, flipped(bytes, bytes.size() - 1));
  }
  const auto before = bytes_below(run.dir());
  const Ended ended = run.resume();
  EXPECT_EQ(ended.exit_code, 2) << ended.err;
  expect_parts(ended.err, {"no sound one is left", "step-00000002/rank-00001.safetensors",
                           "step-00000004/rank-00000.safetensors",
                           "step-00000006/rank-00001.safetensors", "sound: checkpoints/best"});
  EXPECT_EQ(bytes_below(run.dir()), before);
}

// --resume RUN_DIR of another run: its newest sound one, and its folders are not renamed.
TEST(Damage, AnotherRunsDamagedCheckpointIsSkipped) {
  const TinyRun run;
  run.train_well({"name=first"});
  flip_in_the_middle(run.checkpoint(6, "first") / "rank-00000.safetensors");
  const auto before = bytes_below(run.dir("first"));
  const Ended ended =
      run.train({"name=second", "train.steps=8"}, {"--resume", run.dir("first").string()});
  EXPECT_EQ(ended.exit_code, 0) << ended.err;
  expect_parts(ended.err, {"step-00000006/rank-00000.safetensors", "skipped",
                           "resumed from " + run.checkpoint(4, "first").string()});
  EXPECT_EQ(bytes_below(run.dir("first")), before);
}

TEST(Damage, ANewerFormatIsRefusedByName) {
  const TinyRun run;
  run.train_well();
  const fs::path file = run.checkpoint(6) / "index.json";
  std::string text = slurp(file);
  text.replace(text.find("weft checkpoint 1"), 17, "weft checkpoint 7");
  write_bytes(file, text);
  const Ended damaged = run.train({"train.steps=8"}, {"--resume", run.checkpoint(6).string()});
  EXPECT_EQ(damaged.exit_code, 2) << damaged.err;
  expect_parts(damaged.err, {"index.json", "is damaged"});  // COMMITTED has its hash
  // As a newer weft would have committed it.
  const fs::path committed = run.checkpoint(6) / "COMMITTED";
  std::string lines = slurp(committed);
  const size_t at = lines.find("index.json ");
  lines.replace(at, lines.find('\n', at) + 1 - at, "");
  write_bytes(committed, "index.json " + hash_hex(hash_text(text)) + "\n" + lines);
  const auto before = bytes_below(run.dir());
  for (const std::vector<std::string>& words : {run.words("train", {"train.steps=8"}),
                                                {"inspect", "--verify", run.checkpoint(6).string()},
                                                {"hash", run.checkpoint(6).string()}}) {
    const Ended ended = run_to_end(words);
    EXPECT_EQ(ended.exit_code, 2) << ended.err;
    expect_parts(ended.err, {"index.json", "\"weft checkpoint 7\"", "newer weft", "hint: "});
  }
  EXPECT_EQ(bytes_below(run.dir()), before);
}

}  // namespace
}  // namespace weft::testing
