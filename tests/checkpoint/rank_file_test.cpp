// tests/checkpoint/rank_file_test.cpp: a rank's file from its slices and from a copy of them.
#include "checkpoint/rank_file.h"

#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <new>

#include "base/block_writer.h"
#include "base/file.h"
#include "base/hash.h"
#include "tests/io/temporary_folder.h"

namespace weft::testing {
namespace {

// Tensors that end inside blocks, one of several blocks, one without elements, two of one name.
class RankFileTest : public ::testing::Test {
 protected:
  RankFileTest() {
    big_.resize(BlockWriter::kBlock / 2 + 777);  // 2.0 blocks of fp32
    for (size_t i = 0; i < big_.size(); ++i) big_[i] = static_cast<float>(i) * 0.5f;
    for (size_t i = 0; i < small_.size(); ++i) small_[i] = static_cast<uint16_t>(i);
    const auto n = static_cast<int64_t>(big_.size());
    slices_.push_back(whole_tensor("small", {250, 2}, Dtype::kBf16, small_.data()));
    slices_.push_back(whole_tensor("none", {0, 3}, Dtype::kF32, nullptr));
    Slice low = whole_tensor("big", {n}, Dtype::kF32, big_.data());
    low.flat_end = 1001;
    Slice rest = whole_tensor("big", {n}, Dtype::kF32, big_.data() + 1001);
    rest.flat_begin = 1001;
    rest.flat_end = n;
    slices_.push_back(low);
    slices_.push_back(rest);
  }

  std::vector<float> big_;
  std::vector<uint16_t> small_ = std::vector<uint16_t>(500);
  std::vector<Slice> slices_;
  TemporaryFolder folder_;
};

TEST_F(RankFileTest, BothWaysWriteTheSameFileAndIndex) {
  const RankFile file(slices_, 3);
  const std::filesystem::path a = folder_ / "a", b = folder_ / "b";
  std::filesystem::create_directories(a);
  std::filesystem::create_directories(b);
  int64_t num_reads = 0;
  const IndexPart held = file.write(a, [&](void* to, const void* from, size_t bytes) {
    ++num_reads;
    std::memcpy(to, from, bytes);
  });
  EXPECT_GT(num_reads, 3);
  std::byte* image = new (std::align_val_t(4096)) std::byte[file.bytes()];
  file.copy_to(image, nullptr);
  const IndexPart copied = file.write_image(b, image);
  ::operator delete[](image, std::align_val_t(4096));

  EXPECT_EQ(read_file(a / "rank-00003.safetensors").size(), file.bytes());
  EXPECT_TRUE(read_file(a / "rank-00003.safetensors") == read_file(b / "rank-00003.safetensors"));
  EXPECT_EQ(index_to_json(held.tensors, held.headers, 4).dump(),
            index_to_json(copied.tensors, copied.headers, 4).dump());
}

TEST_F(RankFileTest, ChecksumsAreOfTheStoredBytes) {
  const RankFile file(slices_, 0);
  const IndexPart part = file.write(folder_ / ".", nullptr);
  const std::string bytes = read_file(folder_ / "rank-00000.safetensors");
  const auto& slices = part.tensors.at("big").slices;
  ASSERT_EQ(slices.size(), 2u);
  for (const StoredSlice& s : slices) {
    if (s.blocks.empty()) {
      EXPECT_EQ(s.checksum, hash_bytes(bytes.data() + s.begin, s.end - s.begin));
      continue;
    }
    ASSERT_EQ(s.blocks.size(), (s.end - s.begin + kCheckedBlock - 1) / kCheckedBlock);
    for (size_t at = s.begin, i = 0; at < s.end; at += kCheckedBlock, ++i)
      EXPECT_EQ(s.blocks[i], hash_bytes(bytes.data() + at, std::min(kCheckedBlock, s.end - at)));
    EXPECT_EQ(s.checksum, hash_bytes(s.blocks.data(), 8 * s.blocks.size()));
  }
  EXPECT_TRUE(slices[0].blocks.empty());
  EXPECT_FALSE(slices[1].blocks.empty());
  const std::string all(reinterpret_cast<const char*>(big_.data()), big_.size() * 4);
  EXPECT_TRUE(all.substr(0, 1001 * 4) == bytes.substr(slices[0].begin, 1001 * 4));
  EXPECT_TRUE(all.substr(1001 * 4) ==
              bytes.substr(slices[1].begin, slices[1].end - slices[1].begin));
  const StoredHeader header = part.headers.at("rank-00000.safetensors");
  EXPECT_EQ(header.checksum, hash_bytes(bytes.data(), header.bytes));
  EXPECT_EQ(SafetensorsFile(folder_ / "rank-00000.safetensors").tensors().size(), 4u);
}

}  // namespace
}  // namespace weft::testing
