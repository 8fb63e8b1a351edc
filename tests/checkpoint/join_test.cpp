// tests/checkpoint/join_test.cpp: every range of a tensor that is assembled from boxes.
#include "checkpoint/join.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "tests/checkpoint/recut.h"

namespace weft {
namespace {

TensorBox box_of(const std::vector<float>& whole, const Shape& shape, Shape offset, Shape extent) {
  std::vector<float> own;
  for (int64_t r = 0; r < extent[0]; ++r) {
    for (int64_t c = 0; c < extent[1]; ++c)
      own.push_back(whole[static_cast<size_t>((offset[0] + r) * shape[1] + offset[1] + c)]);
  }
  return {std::move(offset), std::move(extent), [own](int64_t begin, int64_t end, void* out) {
            std::copy(own.begin() + begin, own.begin() + end, static_cast<float*>(out));
          }};
}

TEST(JoinBoxes, EveryRangeOfRowsAndColumns) {
  const Shape shape = {4, 6};
  const std::vector<float> whole = testing::numbered(shape);
  const std::vector<std::vector<TensorBox>> cuts = {
      {box_of(whole, shape, {0, 0}, {1, 6}), box_of(whole, shape, {1, 0}, {3, 6})},
      {box_of(whole, shape, {0, 4}, {4, 2}), box_of(whole, shape, {0, 0}, {4, 4})},
      {box_of(whole, shape, {0, 0}, {4, 6})}};
  for (const std::vector<TensorBox>& boxes : cuts) {
    const LogicalTensor joined = join_boxes("w", shape, Dtype::kF32, boxes);
    for (int64_t begin = 0; begin < 24; ++begin) {
      for (int64_t end = begin + 1; end <= 24; ++end) {
        std::vector<float> got(static_cast<size_t>(end - begin), -1);
        joined.read(begin, end, got.data());
        ASSERT_EQ(got, std::vector<float>(whole.begin() + begin, whole.begin() + end));
      }
    }
  }
  EXPECT_THROW(join_boxes("w", shape, Dtype::kF32, {box_of(whole, shape, {0, 0}, {3, 6})}),
               BugError);
}

}  // namespace
}  // namespace weft
