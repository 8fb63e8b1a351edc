// tests/planning/host_memory_test.cpp: the expected memory besides the arenas, from the run file
// and its files.
#include "planning/host_memory.h"

#include <gtest/gtest.h>

#include <fstream>

#include "data/batches.h"
#include "tests/io/temporary_folder.h"

namespace weft {
namespace {

constexpr int64_t kMib = 1 << 20;

void put(const std::filesystem::path& path, int64_t bytes) {
  std::ofstream(path) << std::string(static_cast<size_t>(bytes), 'x');
}

int64_t of_tokenizer(const std::filesystem::path& folder) {
  RunConfig c;
  c.data.tokenizer = folder.string();
  return expected_host_memory(c).tokenizer;
}

TEST(HostMemory, OfATokenizerFollowsFromItsFiles) {
  testing::TemporaryFolder folder;
  EXPECT_EQ(of_tokenizer(folder.path()), 0);  // nothing there
  EXPECT_EQ(of_tokenizer("bytes"), 0);
  put(folder / "vocab.json", kMib);
  put(folder / "merges.txt", kMib / 2);
  EXPECT_EQ(of_tokenizer(folder.path()), 8 * kMib);  // 4 x 1.5 and 2
  put(folder / "spiece.model", 1);
  EXPECT_EQ(of_tokenizer(folder.path()), 9 * kMib);
  put(folder / "tokenizer.json", 2 * kMib);  // alone: the others are copies
  EXPECT_EQ(of_tokenizer(folder.path()), 10 * kMib);
  RunConfig c;
  c.model.path = folder.path().string();
  EXPECT_EQ(expected_host_memory(c).tokenizer, 10 * kMib);  // auto: the model's folder
}

TEST(HostMemory, OfBatchesDependsOnARanksRows) {
  RunConfig c;
  c.train.global_batch = 64;
  c.data.seq_length = 1024;
  const int64_t row = 1024 * 2 * 4, held = StreamOptions{}.prefetch + 3;
  const auto batches = [&] { return expected_host_memory(c).batches; };
  const auto rounded = [](int64_t bytes) { return (bytes + kMib - 1) / kMib * kMib; };
  EXPECT_EQ(batches(), rounded(64 * row * held));
  c.parallel.dp = 3;
  EXPECT_EQ(batches(), rounded(22 * row * held));
  c.parallel.dp = 4;
  EXPECT_EQ(batches(), rounded(16 * row * held));
  c.data.layout = "pack";
  EXPECT_EQ(batches(), rounded(16 * 2 * row * held));
}

// A deep model's graphs and plans count, in each rank.
TEST(HostMemory, TablesGrowWithTheNodes) {
  EXPECT_EQ(expected_table_bytes(0), 0);
  EXPECT_EQ(expected_table_bytes(2000), 0);
  EXPECT_EQ(expected_table_bytes(42'500), 155 * kMib);  // 1,000 layers
  HostMemory m = expected_host_memory({});
  const int64_t one = m.of_rank(1), all = m.of_all(2);
  m.tables = 5 * kMib;
  EXPECT_EQ(m.of_rank(1), one + 5 * kMib);
  EXPECT_EQ(m.of_all(2), all + 10 * kMib);
}

TEST(HostMemory, SeveralRanksHaveASupervisor) {
  RunConfig c;
  EXPECT_EQ(expected_host_memory(c).supervisor, 0);
  c.parallel.tp = 2;
  EXPECT_GT(expected_host_memory(c).supervisor, 0);
  c.parallel.tp = 1;
  c.parallel.dp = 2;
  const HostMemory m = expected_host_memory(c);
  EXPECT_GT(m.supervisor, 0);
  EXPECT_EQ(m.of_rank(0) - m.of_rank(1), m.writer);
  EXPECT_EQ(m.of_all(2), m.of_rank(0) + m.of_rank(1) + m.supervisor - m.code);
}

}  // namespace
}  // namespace weft
