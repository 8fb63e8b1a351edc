// tests/checkpoint/checkpoint_test.cpp: complete or absent; damage is named; a full disk loses
// nothing.
#include "checkpoint/checkpoint.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <csignal>
#include <fstream>
#include <set>

#include "base/error.h"
#include "base/file.h"
#include "checkpoint/damaged.h"
#include "checkpoint/list.h"
#include "checkpoint/rank_file.h"
#include "checkpoint/replace_folder.h"
#include "io/safetensors.h"
#include "tests/checkpoint/commit_again.h"
#include "tests/checkpoint/two_tensors.h"
#include "tests/io/temporary_folder.h"

namespace weft {
namespace {

namespace fs = std::filesystem;
using testing::error_of;
using testing::flip_byte;
using testing::numbered;
using testing::read_a;
using testing::state_of;
using testing::TemporaryFolder;
using testing::write_two;

TEST(Checkpoint, RoundTrip) {
  TemporaryFolder folder;
  write_two(folder / "c", 5, 7);
  EXPECT_EQ(read_a(folder / "c"), numbered({6, 4}, 5));
  const CheckpointReader reader(folder / "c");
  EXPECT_EQ(reader.state().at("step").as_int(), 7);
  EXPECT_TRUE(reader.has("a.weight#m"));
  EXPECT_FALSE(reader.has("b"));
  EXPECT_EQ(read_file(folder / "c/tokenizer.json"), "[]");
  EXPECT_FALSE(fs::exists(folder / "c.writing"));
  EXPECT_FALSE(fs::exists(folder / "c/index-rank-00000.json"));
  // What Python's package sees: a plain safetensors file.
  EXPECT_EQ(SafetensorsFile(folder / "c/rank-00000.safetensors").find("a.weight")->shape,
            (Shape{6, 4}));
}

TEST(Checkpoint, AnOlderOneIsReplacedAtTheEnd) {
  TemporaryFolder folder;
  write_two(folder / "best", 1);
  write_two(folder / "best", 2);
  EXPECT_EQ(read_a(folder / "best"), numbered({6, 4}, 2));
  EXPECT_EQ(std::distance(fs::directory_iterator(folder.path()), {}), 1);
}

TEST(Checkpoint, WithoutCommittedItDoesNotExist) {
  TemporaryFolder folder;
  write_two(folder / "c", 1);
  fs::remove(folder / "c/COMMITTED");
  EXPECT_NE(error_of<UserError>([&] { CheckpointReader(folder / "c"); }).find("COMMITTED"),
            std::string::npos);
}

TEST(Checkpoint, ALeftoverIsIgnoredAndReplaced) {
  TemporaryFolder folder;
  fs::create_directories(folder / "c.writing");
  std::ofstream(folder / "c.writing/rank-00007.safetensors") << "junk";
  std::ofstream(folder / "c.writing/old.txt") << "junk";
  write_two(folder / "c", 1);
  EXPECT_FALSE(fs::exists(folder / "c/rank-00007.safetensors"));
  EXPECT_FALSE(fs::exists(folder / "c/old.txt"));
  EXPECT_FALSE(fs::exists(folder / "c.writing"));
}

// Asked when everything else is done: before COMMITTED, and before the folder gets its name.
TEST(Checkpoint, WhoMayNotCommitLeavesWhatWasThere) {
  TemporaryFolder folder;
  const fs::path writing = folder / "c.writing";
  write_two(folder / "c", 1);
  for (const int refused : {1, 2}) {
    prepare_checkpoint(folder / "c");
    for (int rank = 0; rank < 2; ++rank) {
      std::vector<float> values = numbered({6, 4}, 2);
      write_checkpoint(
          folder / "c",
          {whole_tensor(rank == 0 ? "a.weight" : "b.weight", {6, 4}, Dtype::kF32, values.data())},
          state_of(2), {}, rank, 2);
    }
    int asked = 0;
    const MayCommit may_commit = [&] {
      ++asked;
      EXPECT_TRUE(fs::exists(writing / "index.json"));
      EXPECT_EQ(fs::exists(writing / "COMMITTED"), asked == 2);
      if (asked == refused) throw PeerError("another rank has taken its place");
    };
    EXPECT_THROW(commit_checkpoint(folder / "c", 2, may_commit), PeerError);
    EXPECT_EQ(asked, refused);
    EXPECT_EQ(read_a(folder / "c"), numbered({6, 4}, 1)) << "the older one is intact";
  }
}

// The folder may be that of the process which may.
TEST(Checkpoint, OneRankThatMayNotCommitRemovesNothing) {
  TemporaryFolder folder;
  std::vector<float> a = numbered({6, 4}, 1);
  const std::vector<Slice> slices = {whole_tensor("a", {6, 4}, Dtype::kF32, a.data())};
  const WriteFile write = [&](const fs::path& into) {
    return RankFile(slices, 0).write(into, nullptr);
  };
  const MayCommit refuse = [] { throw PeerError("another rank has taken its place"); };
  EXPECT_THROW(write_checkpoint(folder / "c", write, Json(), {}, 0, 1, refuse), PeerError);
  EXPECT_FALSE(fs::exists(folder / "c"));
  EXPECT_TRUE(fs::exists(folder / "c.writing/rank-00000.safetensors"));
  EXPECT_FALSE(fs::exists(folder / "c.writing/COMMITTED"));
  write_checkpoint(folder / "c", write, Json(), {}, 0, 1, [] {});
  EXPECT_TRUE(is_checkpoint(folder / "c"));
}

// Files of former ranks are deleted; a file that only looks like one is a side file.
TEST(Checkpoint, FilesOfFormerRanksAreDeletedSideFilesKept) {
  TemporaryFolder folder;
  prepare_checkpoint(folder / "c");
  fs::create_directories(folder / "c.writing");
  for (const char* name : {"rank-00005.safetensors", "index-rank-00005.json"})
    std::ofstream(folder / "c.writing" / name) << "of five ranks";
  float a = 1, b = 2;
  write_checkpoint(folder / "c", {whole_tensor("a", {1}, Dtype::kF32, &a)}, Json(Json::Object{}),
                   {{"rank-words.txt", "mine"}}, 0, 2);
  write_checkpoint(folder / "c", {whole_tensor("b", {1}, Dtype::kF32, &b)}, Json(Json::Object{}),
                   {}, 1, 2);
  commit_checkpoint(folder / "c", 2);
  std::set<std::string> names;
  for (const auto& e : fs::directory_iterator(folder / "c")) names.insert(e.path().filename());
  EXPECT_EQ(names,
            (std::set<std::string>{"COMMITTED", "index.json", "rank-00000.safetensors",
                                   "rank-00001.safetensors", "rank-words.txt", "state.json"}));
  CheckpointReader(folder / "c").verify();
}

TEST(Checkpoint, ADamagedSliceIsNamed) {
  TemporaryFolder folder;
  write_two(folder / "c", 1);
  flip_byte(folder / "c/rank-00000.safetensors", -1);
  EXPECT_EQ(read_a(folder / "c"), numbered({6, 4}, 1));  // another slice is damaged
  const std::string message =
      error_of<DamagedCheckpoint>([&] { CheckpointReader(folder / "c").verify(); });
  EXPECT_NE(message.find("\"a.weight#m\""), std::string::npos) << message;
  EXPECT_NE(message.find("rank-00000.safetensors"), std::string::npos) << message;
  EXPECT_NE(message.find("bytes "), std::string::npos) << message;
}

TEST(Checkpoint, ADamagedIndexOrStateIsNamed) {
  for (const char* file : {"index.json", "state.json"}) {
    TemporaryFolder folder;
    write_two(folder / "c", 1);
    flip_byte(folder / "c" / file, 12);
    EXPECT_NE(error_of<DamagedCheckpoint>([&] { CheckpointReader(folder / "c"); }).find(file),
              std::string::npos);
  }
}

// Still valid JSON: only the hash in COMMITTED reveals it.
TEST(Checkpoint, AnyChangedDigitOfIndexOrStateIsDamage) {
  TemporaryFolder folder;
  write_two(folder / "c", 1, 1234567);
  for (const char* file : {"index.json", "state.json"}) {
    const std::string bytes = read_file(folder / "c" / file);
    int num_digits = 0;
    for (size_t i = 0; i < bytes.size(); ++i) {
      if (bytes[i] < '0' || bytes[i] > '9') continue;
      std::string changed = bytes;
      changed[i] = bytes[i] == '9' ? '8' : static_cast<char>(bytes[i] + 1);
      std::ofstream(folder / "c" / file, std::ios::binary) << changed;
      const std::string message = error_of<UserError>([&] { CheckpointReader(folder / "c"); });
      EXPECT_NE(message.find(std::string(file) + " is damaged"), std::string::npos) << message;
      ++num_digits;
    }
    EXPECT_GE(num_digits, 7) << file;
    std::ofstream(folder / "c" / file, std::ios::binary) << bytes;
  }
  EXPECT_EQ(CheckpointReader(folder / "c").state().at("step").as_int(), 1234567);
}

// The slices are still sound, but programs that read the file without index.json would be misled.
TEST(Checkpoint, AnyChangedByteOfAFileIsDamage) {
  TemporaryFolder folder;
  write_two(folder / "c", 1);
  const fs::path file = folder / "c/rank-00000.safetensors";
  const std::string bytes = read_file(file);
  const size_t data_start = SafetensorsFile(file).data_start();
  ASSERT_GT(data_start, 64u);
  for (size_t i = 0; i < bytes.size(); ++i) {
    std::string changed = bytes;
    changed[i] = static_cast<char>(changed[i] ^ 1);
    std::ofstream(file, std::ios::binary) << changed;
    const std::string message =
        error_of<DamagedCheckpoint>([&] { CheckpointReader(folder / "c").verify(); });
    if (i >= data_start) continue;
    EXPECT_NE(message.find("rank-00000.safetensors is damaged: its header"), std::string::npos)
        << i << message;
    EXPECT_NE(error_of<DamagedCheckpoint>([&] { read_a(folder / "c"); }).find("its header"),
              std::string::npos);
  }
  std::ofstream(file, std::ios::binary) << bytes;
  CheckpointReader(folder / "c").verify();
}

// From an earlier weft: its index lists no headers.
TEST(Checkpoint, AnIndexWithoutHeadersIsRead) {
  TemporaryFolder folder;
  write_two(folder / "c", 3);
  Json index = parse_json(read_file(folder / "c/index.json"), "index");
  ASSERT_NE(index.find("headers"), nullptr);
  std::erase_if(index.as_object(), [](const auto& e) { return e.first == "headers"; });
  std::ofstream(folder / "c/index.json") << index.dump();
  commit_again(folder / "c");
  CheckpointReader(folder / "c").verify();
  EXPECT_EQ(read_a(folder / "c"), numbered({6, 4}, 3));
}

TEST(Checkpoint, WrongHeadersAreNamed) {
  TemporaryFolder folder;
  write_two(folder / "c", 3);
  const Json good = parse_json(read_file(folder / "c/index.json"), "index");
  const std::string name = "rank-00000.safetensors";
  const auto message_of = [&](const std::string& headers) {
    Json index = good;
    index.set("headers", parse_json(headers, "headers"));
    std::ofstream(folder / "c/index.json") << index.dump();
    commit_again(folder / "c");
    return error_of<DamagedCheckpoint>([&] { CheckpointReader(folder / "c"); });
  };
  const std::string sum = R"("checksum": "0123456789abcdef")";
  EXPECT_NE(message_of("[1]").find("headers is not an object"), std::string::npos);
  EXPECT_NE(message_of(R"({"../x": {}})").find("wanted rank-NNNNN"), std::string::npos);
  EXPECT_NE(message_of(R"({")" + name + R"(": {"bytes": -1}})").find("bytes is -1"),
            std::string::npos);
  EXPECT_NE(
      message_of(R"({")" + name + R"(": {"bytes": 999999, )" + sum + "}}").find("its header has"),
      std::string::npos);
  EXPECT_NE(
      message_of(R"({"rank-00001.safetensors": {"bytes": 9, )" + sum + "}}").find("is missing"),
      std::string::npos);
}

TEST(Checkpoint, ATruncatedOrMissingFileIsNamed) {
  TemporaryFolder folder;
  write_two(folder / "c", 1);
  const fs::path file = folder / "c/rank-00000.safetensors";
  fs::resize_file(file, fs::file_size(file) - 1);
  EXPECT_NE(error_of<DamagedCheckpoint>([&] { CheckpointReader(folder / "c"); }).find("a.weight#m"),
            std::string::npos);
  fs::remove(file);
  EXPECT_NE(error_of<DamagedCheckpoint>([&] { CheckpointReader(folder / "c"); }).find("rank-00000"),
            std::string::npos);
}

// It was sound when opened: a reader must not consider it damaged and skip it.
TEST(Checkpoint, AFileTruncatedWhileReadIsNotDamage) {
  TemporaryFolder folder;
  write_two(folder / "c", 1);
  const fs::path file = folder / "c/rank-00000.safetensors";
  const CheckpointReader reader(folder / "c");
  fs::resize_file(file, 8);
  EXPECT_NE(error_of<RunError>([&] { reader.verify(); }).find("changed while it was in use"),
            std::string::npos);
}

TEST(Checkpoint, AFileThatGrewIsDamage) {
  TemporaryFolder folder;
  write_two(folder / "c", 1);
  const fs::path file = folder / "c/rank-00000.safetensors";
  const auto size = fs::file_size(file);
  fs::resize_file(file, size + 1);
  const std::string message =
      error_of<DamagedCheckpoint>([&] { CheckpointReader reader(folder / "c"); });
  EXPECT_NE(message.find(fmt::format("holds {} bytes, but {} were written", size + 1, size)),
            std::string::npos)
      << message;
}

// A line of COMMITTED that cannot be read must not leave its file unchecked.
TEST(Checkpoint, ALineOfCommittedWithoutItsBlankIsDamage) {
  TemporaryFolder folder;
  write_two(folder / "c", 1);
  const std::string whole = read_file(folder / "c/COMMITTED");
  for (size_t at = whole.find(' '); at != std::string::npos; at = whole.find(' ', at + 1)) {
    std::string changed = whole;
    changed[at] ^= 1;
    std::ofstream(folder / "c/COMMITTED", std::ios::binary) << changed;
    error_of<DamagedCheckpoint>([&] { CheckpointReader reader(folder / "c"); });
  }
}

TEST(Checkpoint, AnotherShapeOrTypeIsRejected) {
  TemporaryFolder folder;
  write_two(folder / "c", 1);
  const CheckpointReader reader(folder / "c");
  std::vector<float> data(24);
  auto refusal = [&](const char* name, Shape shape, Dtype dtype) {
    return error_of<UserError>([&] { reader.read(whole_tensor(name, shape, dtype, data.data())); });
  };
  EXPECT_NE(refusal("a.weight", {4, 6}, Dtype::kF32).find("(6, 4)"), std::string::npos);
  EXPECT_NE(refusal("a.weight", {6, 4}, Dtype::kBf16).find("fp32"), std::string::npos);
  EXPECT_NE(refusal("b", {6, 4}, Dtype::kF32).find("\"b\""), std::string::npos);
}

// RLIMIT_FSIZE stands for a full disk: write() fails in the middle of the file.
TEST(Checkpoint, AFullDiskLeavesTheOlderOneIntact) {
  TemporaryFolder folder;
  write_two(folder / "c", 1);
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  const auto old = std::signal(SIGXFSZ, SIG_IGN);
  for (rlim_t limit = 1; limit < 4096; limit += 97) {
    const rlimit small{limit, before.rlim_max};
    ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
    bool failed = false;
    try {
      write_two(folder / "c", 2);
    } catch (const RunError&) {
      failed = true;
    }
    ::setrlimit(RLIMIT_FSIZE, &before);
    EXPECT_EQ(read_a(folder / "c"), numbered({6, 4}, failed ? 1 : 2)) << limit;
    EXPECT_FALSE(fs::exists(folder / "c.writing"));
    if (!failed) break;
    EXPECT_LT(limit, rlim_t{4000});
  }
  std::signal(SIGXFSZ, old);
}

TEST(Checkpoint, ListAndPrune) {
  TemporaryFolder run;
  for (int64_t step : {100, 20, 3}) {
    write_two(checkpoint_path(run.path(), step), static_cast<float>(step), step);
  }
  write_two(run / "checkpoints/best", 20);
  fs::create_directories(run / "checkpoints/step-00000050.writing");
  fs::create_directories(run / "checkpoints/step-00000200.writing");
  fs::create_directories(run / "checkpoints/step-00000060");
  const auto list = list_checkpoints(run.path());
  ASSERT_EQ(list.size(), 3u);
  EXPECT_EQ(list.back(), run / "checkpoints/step-00000100");
  EXPECT_EQ(list.front(), run / "checkpoints/step-00000003");

  fs::create_directories(run / "checkpoints/step-00000070.removing");
  prune_checkpoints(run.path(), 2);
  EXPECT_EQ(list_checkpoints(run.path()).size(), 2u);
  EXPECT_FALSE(fs::exists(run / "checkpoints/step-00000003"));
  EXPECT_FALSE(fs::exists(run / "checkpoints/step-00000003.removing"));
  EXPECT_FALSE(fs::exists(run / "checkpoints/step-00000050.writing"));
  EXPECT_FALSE(fs::exists(run / "checkpoints/step-00000070.removing"));
  EXPECT_TRUE(fs::exists(run / "checkpoints/step-00000060"));          // not ours to delete
  EXPECT_TRUE(fs::exists(run / "checkpoints/step-00000200.writing"));  // may be in flight
  EXPECT_TRUE(is_checkpoint(run / "checkpoints/best"));
  prune_checkpoints(run.path(), 0);
  EXPECT_EQ(list_checkpoints(run.path()).size(), 1u);
  EXPECT_TRUE(list_checkpoints(run / "nowhere").empty());
}

TEST(Checkpoint, TheOneJustSavedIsNeverPruned) {
  TemporaryFolder run;
  for (int64_t step : {2, 4, 8, 10}) write_two(checkpoint_path(run.path(), step), 1, step);
  prune_checkpoints(run.path(), 1, 4);
  EXPECT_FALSE(fs::exists(checkpoint_path(run.path(), 2)));
  for (int64_t step : {4, 8, 10}) EXPECT_TRUE(is_checkpoint(checkpoint_path(run.path(), step)));
}

TEST(Checkpoint, ADamagedOneDoesNotCountAsKept) {
  TemporaryFolder run;
  for (int64_t step : {2, 4, 8, 10}) write_two(checkpoint_path(run.path(), step), 1, step);
  fs::resize_file(checkpoint_path(run.path(), 8) / "rank-00000.safetensors", 100);
  prune_checkpoints(run.path(), 2);
  EXPECT_FALSE(fs::exists(checkpoint_path(run.path(), 2)));
  for (int64_t step : {4, 8, 10}) EXPECT_TRUE(is_checkpoint(checkpoint_path(run.path(), step)));
  prune_checkpoints(run.path(), 9);
  EXPECT_EQ(list_checkpoints(run.path()).size(), 3u);
}

TEST(Checkpoint, AnInterruptedReplacementIsUndone) {
  TemporaryFolder folder;
  write_two(folder / "best", 1);
  recover_replaced(folder / "best");  // nothing to do
  fs::rename(folder / "best", folder / "best.old");
  recover_replaced(folder / "best");
  EXPECT_TRUE(is_checkpoint(folder / "best"));
  fs::rename(folder / "best", folder / "best.old");
  write_two(folder / "best", 2);
  EXPECT_TRUE(is_checkpoint(folder / "best"));
  EXPECT_FALSE(fs::exists(folder / "best.old"));
}

}  // namespace
}  // namespace weft
