// tests/checkpoint/slice_reader_test.cpp: parts of large slices: how much is read, and what is
// checked.
#include "checkpoint/slice_reader.h"

#include <gtest/gtest.h>

#include <fstream>
#include <random>

#include "base/file.h"
#include "base/hash.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/damaged.h"
#include "tests/checkpoint/commit_again.h"
#include "tests/checkpoint/recut.h"
#include "tests/checkpoint/two_tensors.h"
#include "tests/io/temporary_folder.h"

namespace weft {
namespace {

namespace fs = std::filesystem;
using testing::cut;
using testing::error_of;
using testing::flip_byte;
using testing::numbered;
using testing::pick;
using testing::state_of;
using testing::TemporaryFolder;

const Shape kShape = {1000, 1700};  // 6.8 MB: 26 blocks
constexpr int64_t kBytes = int64_t{1000} * 1700 * 4, kBlock = kCheckedBlock;

// The tensor w, of `num_ranks` flat ranges.
class StoredByRanks {
 public:
  explicit StoredByRanks(int num_ranks) : values_(numbered(kShape)) {
    const Slice whole = whole_tensor("w", kShape, Dtype::kF32, values_.data());
    prepare_checkpoint(folder());
    for (int rank = 0; rank < num_ranks; ++rank) {
      const int64_t n = num_elements(kShape), begin = n * rank / num_ranks;
      Slice slice = whole;
      slice.flat_begin = begin;
      slice.flat_end = n * (rank + 1) / num_ranks;
      slice.data = values_.data() + begin;
      write_checkpoint(folder(), {slice}, state_of(1), {}, rank, num_ranks);
    }
    if (num_ranks > 1) commit_checkpoint(folder(), num_ranks);
  }
  fs::path folder() const { return folder_ / "c"; }

  // Reads each slice with a reader of its own, as ranks do; all bytes that were read.
  int64_t read(std::vector<Slice> slices) const {
    int64_t sum = 0;
    for (Slice& s : slices) {
      const std::vector<float> wanted = pick(s, values_);
      std::vector<float> got(wanted.size(), -1);
      s.data = got.data();
      const CheckpointReader reader(folder());
      reader.read(s);
      EXPECT_EQ(got, wanted);
      sum += reader.bytes_read();
    }
    return sum;
  }

  // As an earlier weft has written it.
  // As an older weft wrote it: one checksum, of all bytes of a slice.
  void drop_blocks() const {
    const fs::path file = folder() / "index.json";
    std::string text = read_file(file);
    const CheckpointReader reader(folder());
    for (const StoredSlice& s : reader.tensors().at("w").slices) {
      const std::string bytes = read_file(folder() / s.file);
      text.replace(text.find(hash_hex(s.checksum)), 16,
                   hash_hex(hash_bytes(bytes.data() + s.begin, s.end - s.begin)));
    }
    for (size_t at; (at = text.find(", \"blocks\": ")) != std::string::npos;)
      text.erase(at, text.find('}', at) - at);
    std::ofstream(file) << text;
    commit_again(folder());
  }

 private:
  TemporaryFolder folder_;
  std::vector<float> values_;
};

// Cut along `dim` for tp ranks, each box into dp flat ranges.
std::vector<Slice> slices_of(size_t dim, int tp, int dp) {
  std::mt19937 random(3);
  std::vector<int64_t> cuts;
  for (int i = 0; i <= tp; ++i) cuts.push_back(kShape[dim] * i / tp);
  std::vector<Slice> slices =
      cut(whole_tensor("w", kShape, Dtype::kF32, nullptr), dim, cuts, 1, random);
  if (dp == 1) return slices;
  std::vector<Slice> ranges;
  for (const Slice& box : slices) {
    for (int i = 0; i < dp; ++i) {
      ranges.push_back(box);
      ranges.back().flat_begin = num_elements(box.extent) * i / dp;
      ranges.back().flat_end = num_elements(box.extent) * (i + 1) / dp;
    }
  }
  return ranges;
}

int64_t read_by_the_kernel() {
  std::ifstream file("/proc/self/io");
  std::string key;
  int64_t value = 0;
  file >> key >> value;
  EXPECT_EQ(key, "rchar:");
  return value;
}

TEST(SliceReader, OtherLayoutsReadTheStateAboutOnce) {
  const StoredByRanks four(4), one(1);
  const int64_t before = read_by_the_kernel();
  // 4 ranges -> 2 boxes of rows: the ends of boxes are within blocks.
  const int64_t rows = four.read(slices_of(0, 2, 1));
  EXPECT_GE(rows, kBytes);
  EXPECT_LE(rows, kBytes + 2 * kBlock);
  // 1 rank -> 4 ranges.
  const int64_t ranges = one.read(slices_of(0, 1, 4));
  EXPECT_GE(ranges, kBytes);
  EXPECT_LE(ranges, kBytes + 6 * kBlock + 4 * 1000);
  // Every row is cut: each of two ranks needs a part of every block.
  const int64_t columns = four.read(slices_of(1, 2, 1));
  EXPECT_LE(columns, 2 * kBytes + 8 * 1000);
  // 2 x 2: each reads half of that.
  EXPECT_LE(four.read(slices_of(1, 2, 2)), 2 * kBytes + 12 * kBlock);
  // The system has read what we count, and small files.
  const int64_t kernel = read_by_the_kernel() - before;
  EXPECT_GE(kernel, rows + ranges + columns);
  EXPECT_LE(kernel, (rows + ranges + 2 * columns) * 11 / 10);
}

TEST(SliceReader, PiecesCoverOnceAndAreSmall) {
  const StoredByRanks one(1);
  const CheckpointReader reader(one.folder());
  const auto pieces = reader.pieces_of(whole_tensor("w", kShape, Dtype::kF32, nullptr));
  size_t at = 0;
  for (const ReadPiece& piece : pieces) {
    EXPECT_EQ(piece.begin, at);
    EXPECT_LE(piece.end - piece.begin, size_t{4} << 20);
    at = piece.end;
  }
  EXPECT_EQ(at, static_cast<size_t>(kBytes));
  EXPECT_EQ(pieces.size(), 2u);
}

// Damage is found by whoever reads the block, and is named to the byte.
TEST(SliceReader, ADamagedBlockConcernsOnlyItsReaders) {
  const StoredByRanks one(1);
  const CheckpointReader reader(one.folder());
  const StoredSlice& slice = reader.tensors().at("w").slices.at(0);
  const fs::path file = one.folder() / "rank-00000.safetensors";
  flip_byte(file, static_cast<int64_t>(slice.begin) + 10 * kBlock + 5);
  std::vector<Slice> quarters = slices_of(0, 1, 4);  // of 6.5 blocks: the second has it
  std::vector<float> out(1000 * 1700);
  for (size_t i = 0; i < quarters.size(); ++i) {
    quarters[i].data = out.data();
    if (i != 1) {
      reader.read(quarters[i]);
      continue;
    }
    const std::string message = error_of<DamagedCheckpoint>([&] { reader.read(quarters[i]); });
    EXPECT_NE(message.find(fmt::format("tensor \"w\" is damaged: bytes {} to {} of {}",
                                       slice.begin + 10 * kCheckedBlock,
                                       slice.begin + 11 * kCheckedBlock, file.string())),
              std::string::npos)
        << message;
  }
  EXPECT_NE(error_of<DamagedCheckpoint>([&] { reader.verify(); }).find("\"w\""), std::string::npos);
}

TEST(SliceReader, WithoutBlocksASliceIsCheckedWholeAndOnce) {
  const StoredByRanks one(1);
  one.drop_blocks();
  EXPECT_TRUE(CheckpointReader(one.folder()).tensors().at("w").slices.at(0).blocks.empty());
  EXPECT_GE(one.read(slices_of(0, 1, 4)), 4 * kBytes);  // four readers
  const CheckpointReader reader(one.folder());
  std::vector<float> out(1000 * 1700);
  for (Slice& quarter : slices_of(0, 1, 4)) {
    quarter.data = out.data();
    reader.read(quarter);
  }
  EXPECT_LE(reader.bytes_read(), 2 * kBytes);  // once to check it, and three quarters
  flip_byte(one.folder() / "rank-00000.safetensors", -1);
  Slice first = slices_of(0, 1, 4)[0];
  first.data = out.data();
  const CheckpointReader again(one.folder());
  EXPECT_NE(error_of<DamagedCheckpoint>([&] { again.read(first); }).find("wrong checksum"),
            std::string::npos);
}

TEST(SliceReader, WrongListsOfBlocksAreDamage) {
  for (const char* change : {"short", "digit"}) {
    const StoredByRanks one(1);
    const fs::path file = one.folder() / "index.json";
    std::string text = read_file(file);
    const size_t at = text.find("\"blocks\": \"") + 11;
    if (change == std::string("short")) {
      text.erase(at, 16);
    } else {
      text[at] = 'x';
    }
    std::ofstream(file) << text;
    commit_again(one.folder());
    const std::string message =
        error_of<DamagedCheckpoint>([&] { CheckpointReader reader(one.folder()); });
    EXPECT_NE(message.find("tensor \"w\""), std::string::npos) << message;
  }
}

}  // namespace
}  // namespace weft
