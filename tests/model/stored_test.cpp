// tests/model/stored_test.cpp: boxes of a stored tensor: of rows, of columns, and wrong ones.
#include "model/stored.h"

#include <gtest/gtest.h>

#include <fstream>
#include <numeric>

#include "base/error.h"
#include "io/safetensors.h"
#include "model/load.h"
#include "tests/io/temporary_folder.h"

namespace weft {
namespace {

ParameterSpec part(const char* name, Shape shape, Shape begin) {
  return {name, std::move(shape), {}, {}, {"fused", {2, 6}, std::move(begin)}};
}

TEST(Stored, OwnNameAndShapeByDefault) {
  const ParameterSpec spec{"w", {4, 3}, {}, {}};
  EXPECT_EQ(stored_as(spec).name, "w");
  EXPECT_EQ(stored_as(spec).shape, (Shape{4, 3}));
  const Portion p{"w#m", {4, 3}, {2, 0}, {2, 3}, 1, 5};
  const Portion same = to_stored(spec, p);
  EXPECT_EQ(same.name, "w#m");
  EXPECT_EQ(same.offset, p.offset);
}

TEST(Stored, PortionsMoveAndKeepTheirRange) {
  const Portion p = to_stored(part("k", {2, 2}, {0, 2}), {"k#v", {2, 2}, {1, 0}, {1, 2}, 1, 2});
  EXPECT_EQ(p.name, "fused#v");
  EXPECT_EQ(p.shape, (Shape{2, 6}));
  EXPECT_EQ(p.offset, (Shape{1, 2}));
  EXPECT_EQ(p.extent, (Shape{1, 2}));
  EXPECT_EQ(p.begin, 1);
  EXPECT_EQ(p.end, 2);
}

// Thirds by columns, as GPT-2's c_attn.
TEST(Stored, ColumnsAreLoadedRowByRow) {
  const testing::TemporaryFolder folder;
  std::vector<float> values(12);
  std::iota(values.begin(), values.end(), 0.0f);
  std::ofstream(folder / "config.json") << "{}";
  write_safetensors(folder / "model.safetensors", {{"fused", Dtype::kF32, {2, 6}, values.data()}},
                    {{"format", "pt"}});
  const HfFolder hf(folder.path());
  std::vector<float> got(4);
  load_parameter(hf, part("k", {2, 2}, {0, 2}), Dtype::kF32, got.data());
  EXPECT_EQ(got, (std::vector<float>{2, 3, 8, 9}));
}

TEST(Stored, PartsMustFillTheirTensor) {
  std::vector<ParameterSpec> specs = {part("q", {2, 2}, {0, 0}),
                                      part("k", {2, 2}, {0, 2}),
                                      part("v", {2, 2}, {0, 4}),
                                      {"w", {3}, {}, {}}};
  const std::vector<FileTensor> tensors = file_tensors(specs);
  ASSERT_EQ(tensors.size(), 2u);
  EXPECT_EQ(tensors[0].name, "fused");
  EXPECT_EQ(tensors[0].parts.size(), 3u);
  EXPECT_EQ(tensors[1].name, "w");
  specs.erase(specs.begin() + 1);
  EXPECT_THROW(file_tensors(specs), BugError);
  EXPECT_THROW(whole_as_stored(part("v", {2, 2}, {0, 5})), BugError);
  EXPECT_THROW(whole_as_stored(part("v", {12}, {0})), BugError);
}

}  // namespace
}  // namespace weft
