// tests/checkpoint/recut_test.cpp: what one layout writes, any other reads.
#include "tests/checkpoint/recut.h"

#include <gtest/gtest.h>

#include <list>

#include "base/error.h"
#include "tests/io/temporary_folder.h"

namespace weft {
namespace {

using testing::cut;
using testing::error_of;
using testing::numbered;
using testing::pick;
using testing::random_cuts;
using testing::TemporaryFolder;

struct Layout {
  int dp, tp;
};

class Writer {
 public:
  Writer(std::filesystem::path folder, Layout layout)
      : folder_(std::move(folder)), ranks_(static_cast<size_t>(layout.dp * layout.tp)) {}
  void add(const std::vector<Slice>& slices, const std::vector<float>& whole) {
    for (size_t r = 0; r < slices.size(); ++r) {
      buffers_.push_back(pick(slices[r], whole));
      ranks_[r].push_back(slices[r]);
      ranks_[r].back().data = buffers_.back().data();
    }
  }
  void write() {
    const int n = static_cast<int>(ranks_.size());
    prepare_checkpoint(folder_);
    for (int r = n; r-- > 0;) {  // rank 0 last: the order must not matter
      write_checkpoint(folder_, ranks_[static_cast<size_t>(r)], Json(Json::Object{}), {}, r, n);
    }
    if (n > 1) commit_checkpoint(folder_, n);
  }

 private:
  std::filesystem::path folder_;
  std::vector<std::vector<Slice>> ranks_;
  std::list<std::vector<float>> buffers_;
};

Shape random_shape(std::mt19937& random) {
  Shape shape(std::uniform_int_distribution<size_t>(0, 4)(random));
  for (int64_t& extent : shape) extent = std::uniform_int_distribution<int64_t>(1, 9)(random);
  return shape;
}

std::vector<Slice> random_slices(const std::string& name, const Shape& shape, Layout layout,
                                 std::mt19937& random) {
  const Slice whole = whole_tensor(name, shape, Dtype::kF32, nullptr);
  if (shape.empty()) return cut(whole, 0, {0, 1}, layout.dp * layout.tp, random);
  const size_t dim = std::uniform_int_distribution<size_t>(0, shape.size() - 1)(random);
  return cut(whole, dim, random_cuts(shape[dim], layout.tp, random), layout.dp, random);
}

TEST(Recut, AnyLayoutReadsAnyOther) {
  std::mt19937 random(7);
  std::uniform_int_distribution<int> ranks(1, 4);
  for (int round = 0; round < 10; ++round) {
    TemporaryFolder folder;
    const Layout from{ranks(random), ranks(random)}, to{ranks(random), ranks(random)};
    std::map<std::string, std::pair<Shape, std::vector<float>>> model;
    Writer writer(folder / "c", from);
    for (int i = 0; i < 20; ++i) {
      const std::string name = fmt::format("t{}", i);
      const Shape shape = random_shape(random);
      const auto& data =
          (model[name] = {shape, numbered(shape, static_cast<float>(i * 10000))}).second;
      writer.add(random_slices(name, shape, from, random), data);
    }
    writer.write();
    const CheckpointReader reader(folder / "c");
    for (const auto& [name, tensor] : model) {
      for (Slice s : random_slices(name, tensor.first, to, random)) {
        const std::vector<float> wanted = pick(s, tensor.second);
        std::vector<float> got(wanted.size(), -1);
        s.data = got.data();
        reader.read(s);
        ASSERT_EQ(got, wanted) << name << " " << to_string(tensor.first) << " round " << round;
      }
    }
    reader.verify();
  }
}

TEST(Recut, CommonRunsAreLong) {
  // A row cut against the whole: one run, not one per row.
  const Region whole{{0, 0}, {100, 7}, 0, 700}, rows{{40, 0}, {20, 7}, 0, 140};
  int runs = 0;
  for_each_common_run(whole, rows, [&](int64_t from, int64_t to, int64_t count) {
    ++runs;
    EXPECT_EQ(from, 280);
    EXPECT_EQ(to, 0);
    EXPECT_EQ(count, 140);
  });
  EXPECT_EQ(runs, 1);
}

TEST(Recut, AMissingOrDuplicateElementIsABug) {
  TemporaryFolder folder;
  std::vector<float> data = numbered({4, 3});
  Slice top = whole_tensor("x", {4, 3}, Dtype::kF32, data.data());
  top.extent = {2, 3};
  Slice low = top;
  low.offset = {2, 0};
  const auto attempt = [&](const std::vector<Slice>& slices) {
    return error_of<BugError>([&] { write_checkpoint(folder / "c", slices, Json(), {}); });
  };
  EXPECT_NE(attempt({top}).find("hold 6 of 12"), std::string::npos);
  Slice shifted = low;
  shifted.offset = {1, 0};
  EXPECT_NE(attempt({top, shifted}).find("the same elements"), std::string::npos);
  low.flat_end = 5;
  EXPECT_NE(attempt({top, low}).find("hold 11 of 12"), std::string::npos);
  low.flat_end = 7;
  EXPECT_NE(attempt({top, low}).find("elements 0 to 7 of a box of 6"), std::string::npos);
  EXPECT_FALSE(is_checkpoint(folder / "c"));
  EXPECT_FALSE(std::filesystem::exists(folder / "c.writing"));
  low.flat_end = 6;
  write_checkpoint(folder / "c", {top, low}, Json(), {});
  EXPECT_TRUE(is_checkpoint(folder / "c"));
}

}  // namespace
}  // namespace weft
