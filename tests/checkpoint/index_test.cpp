// tests/checkpoint/index_test.cpp: a malformed index is rejected by name; none crashes the reader.
#include "checkpoint/index.h"

#include <gtest/gtest.h>

#include <fstream>

#include "base/error.h"
#include "base/file.h"
#include "tests/checkpoint/commit_again.h"
#include "tests/checkpoint/model_fixture.h"
#include "tests/io/temporary_folder.h"

namespace weft {
namespace {

using testing::error_of;
using testing::store_checkpoint;
using testing::TemporaryFolder;

constexpr const char* kGood =
    R"({"format": "weft checkpoint 1", "num_ranks": 1, "tensors": {"x": {"shape": [4, 3], "dtype": "F32",
    "slices": [{"file": "rank-00000.safetensors", "offsets": [64, 112],
    "box": {"offset": [0, 0], "extent": [4, 3]}, "flat": [0, 12], "checksum": "00000000000000aa"}]}}})";

std::string replaced(const std::string& from, const std::string& to) {
  std::string text = kGood;
  const size_t at = text.find(from);
  if (at == std::string::npos) ADD_FAILURE() << from;
  return text.replace(at, from.size(), to);
}

TEST(Index, RoundTrip) {
  const StoredTensors tensors = index_from_json(parse_json(kGood, "good"), "good");
  EXPECT_EQ(tensors.at("x").slices[0].checksum, 0xaau);
  EXPECT_EQ(coverage_fault(tensors), "");
  EXPECT_EQ(index_to_json(tensors, {}, 1), parse_json(kGood, "good"));
}

TEST(Index, InconsistenciesAreNamed) {
  const struct {
    const char *from, *to, *complaint;
  } kLies[] = {
      {"weft checkpoint 1", "weft checkpoint 2", "format"},
      {"\"format\"", "\"farmat\"", "format missing"},
      {"\"F32\"", "\"F31\"", "F31"},
      {"[4, 3], \"dtype\"", "[-4, 3], \"dtype\"", "-4"},
      {"[4, 3], \"dtype\"", "[4294967296, 4294967296], \"dtype\"", "overflows"},
      {"\"extent\": [4, 3]", "\"extent\": [5, 3]", "a box at"},
      {"\"extent\": [4, 3]", "\"extent\": [4]", "a box of 1 dims"},
      {"\"offset\": [0, 0]", "\"offset\": [9223372036854775807, 0]", "a box at"},
      {"[0, 12]", "[0, 13]", "elements 0 to 13"},
      {"[0, 12]", "[12, 0]", "elements 12 to 0"},
      {"[0, 12]", "[0, 11]", "bytes 64 to 112 for 11"},
      {"[64, 112]", "[112, 64]", "bytes 112 to 64"},
      {"rank-00000.safetensors", "../rank-00000.safetensors", "wanted rank-"},
      {"rank-00000.safetensors", "rank-/../../x.safetensors", "wanted rank-"},
      {"00000000000000aa", "xyz", "16 hexadecimal"},
      {"\"checksum\"", "\"checksun\"", "checksum"},
  };
  for (const auto& lie : kLies) {
    const std::string text = replaced(lie.from, lie.to);
    const std::string message =
        error_of<UserError>([&] { index_from_json(parse_json(text, "lie"), "lie"); });
    EXPECT_NE(message.find(lie.complaint), std::string::npos) << lie.to << " gave " << message;
  }
}

TEST(Index, TruncatedOrFlippedNeverCrashes) {
  TemporaryFolder folder;
  store_checkpoint(folder / "c", 1, 2, 0, false, false);
  const std::string whole = read_file(folder / "c/index.json");
  CheckpointReader(folder / "c").verify();
  std::mt19937 random(3);
  for (int round = 0; round < 150; ++round) {
    const size_t at = random() % (whole.size() - 1);
    std::string bad = whole;
    if (round % 2) {
      bad.resize(at);
    } else {
      bad[at] = static_cast<char>(bad[at] ^ (1 << random() % 7));
    }
    std::ofstream(folder / "c/index.json", std::ios::trunc) << bad;
    commit_again(folder / "c");  // so that the index is parsed, not only hashed
    try {
      CheckpointReader(folder / "c").verify();
    } catch (const UserError&) {
    }
  }
}

}  // namespace
}  // namespace weft
