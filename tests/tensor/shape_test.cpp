// tests/tensor/shape_test.cpp: counts and text.
#include "tensor/shape.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace weft {
namespace {

TEST(Shapes, Count) {
  EXPECT_EQ(num_elements({}), 1);
  EXPECT_EQ(num_elements({2, 3, 4}), 24);
  EXPECT_EQ(num_elements({5, 0}), 0);
}

TEST(Shapes, TooLargeShapesAreRejected) {
  EXPECT_EQ(num_elements({1 << 21, 1 << 21}), int64_t{1} << 42);
  EXPECT_THROW(num_elements({1 << 21, 1 << 22}), UserError);
  EXPECT_THROW(num_elements({int64_t{1} << 40, int64_t{1} << 40}), UserError);
}

TEST(Shapes, Print) {
  EXPECT_EQ(to_string(Shape{}), "()");
  EXPECT_EQ(to_string(Shape{7}), "(7)");
  EXPECT_EQ(to_string(Shape{2, 3}), "(2, 3)");
}

}  // namespace
}  // namespace weft
