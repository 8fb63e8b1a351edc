// tests/io/safetensors_test.cpp: round trips, and malformed files.
#include "io/safetensors.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <csignal>
#include <cstring>

#include "base/error.h"
#include "tests/io/temporary_folder.h"

namespace weft {
namespace {

using testing::error_of;
using testing::TemporaryFolder;

// A file of the given header text and data bytes.
std::string file_of(const std::string& header, size_t data_bytes) {
  std::string file(8, '\0');
  for (size_t i = 0; i < 8; ++i) file[i] = static_cast<char>(header.size() >> (8 * i) & 0xff);
  return file + header + std::string(data_bytes, '\1');
}

std::string safetensors_refusal(const std::string& file) {
  return error_of<UserError>([&] { parse_safetensors(file, "lie.safetensors"); });
}

std::string entry(const char* name, const char* dtype, const char* shape, const char* offsets) {
  return fmt::format(R"("{}":{{"dtype":"{}","shape":{},"data_offsets":{}}})", name, dtype, shape,
                     offsets);
}

TEST(Safetensors, RoundTripKeepsEveryTypeAndAligns) {
  TemporaryFolder folder;
  const std::vector<Dtype> types = {Dtype::kBool, Dtype::kF16, Dtype::kF64, Dtype::kU8,
                                    Dtype::kI8,   Dtype::kI16, Dtype::kF32, Dtype::kBf16,
                                    Dtype::kI32,  Dtype::kI64};
  std::vector<std::vector<unsigned char>> bytes;
  std::vector<TensorToWrite> tensors;
  for (size_t i = 0; i < types.size(); ++i) {
    bytes.emplace_back(static_cast<size_t>(15 * dtype_bytes(types[i])),
                       static_cast<unsigned char>(i + 1));
    tensors.push_back({fmt::format("t{}", i), types[i], {3, 5}, nullptr});
  }
  for (size_t i = 0; i < types.size(); ++i) tensors[i].data = bytes[i].data();
  write_safetensors(folder / "a.safetensors", tensors, {{"format", "pt"}, {"quote", "\"\\\n"}});

  const SafetensorsFile file(folder / "a.safetensors");
  EXPECT_EQ(file.data_start() % 64, 0u);
  EXPECT_EQ(file.metadata().at("quote"), "\"\\\n");
  EXPECT_EQ(file.tensors().size(), types.size());
  for (size_t i = 0; i < types.size(); ++i) {
    const TensorInfo* info = file.find(tensors[i].name);
    ASSERT_NE(info, nullptr);
    EXPECT_EQ(info->dtype, types[i]);
    EXPECT_EQ(info->shape, (Shape{3, 5}));
    EXPECT_EQ(info->begin % static_cast<size_t>(dtype_bytes(types[i])), 0u);
    EXPECT_EQ(std::memcmp(file.data(*info), bytes[i].data(), bytes[i].size()), 0);
  }
  EXPECT_EQ(file.find("t99"), nullptr);
}

TEST(Safetensors, EmptyTensorsAndScalars) {
  TemporaryFolder folder;
  const float one = 1;
  write_safetensors(folder / "a",
                    {{"none", Dtype::kF32, {0, 7}, nullptr},
                     {"scalar", Dtype::kF32, {}, &one},
                     {"nothing", Dtype::kF32, {3, 0}, nullptr}},
                    {});
  const SafetensorsFile file(folder / "a");
  EXPECT_EQ(file.find("none")->shape, (Shape{0, 7}));
  EXPECT_EQ(file.find("scalar")->end - file.find("scalar")->begin, 4u);
  write_safetensors(folder / "empty", {}, {});
  EXPECT_TRUE(SafetensorsFile(folder / "empty").tensors().empty());
}

TEST(Safetensors, TruncatedAnywhereIsRefused) {
  TemporaryFolder folder;
  const float data[6] = {1, 2, 3, 4, 5, 6};
  write_safetensors(folder / "a", {{"x", Dtype::kF32, {2, 3}, data}}, {{"format", "pt"}});
  const std::string whole = read_file(folder / "a");
  EXPECT_EQ(parse_safetensors(whole, "whole").tensors.size(), 1u);
  for (size_t n = 0; n < whole.size(); ++n) {
    EXPECT_NE(safetensors_refusal(whole.substr(0, n)).find("lie.safetensors"), std::string::npos)
        << n;
  }
  EXPECT_NE(safetensors_refusal(whole + "x").find("data section"), std::string::npos);
  EXPECT_NE(safetensors_refusal(whole.substr(0, whole.size() - 1)).find("truncated"),
            std::string::npos);
}

TEST(Safetensors, FlippedBitsNeverCrash) {
  const std::string whole = file_of("{" + entry("x", "F32", "[2,3]", "[0,24]") + "}", 24);
  for (size_t i = 0; i < whole.size() - 24; ++i) {
    for (int bit = 0; bit < 8; ++bit) {
      std::string bad = whole;
      bad[i] = static_cast<char>(bad[i] ^ (1 << bit));
      try {
        for (const TensorInfo& t : parse_safetensors(bad, "flip").tensors) EXPECT_LE(t.end, 24u);
      } catch (const UserError&) {
      }
    }
  }
}

TEST(Safetensors, InconsistentHeadersAreNamed) {
  const struct {
    std::string header;
    size_t data_bytes;
    const char* complaint;
  } kLies[] = {
      {"{" + entry("x", "F32", "[2]", "[0,4]") + "}", 4, "needs 8"},
      {"{" + entry("x", "F32", "[2]", "[0,8]") + "}", 4, "ends at byte 8 of a data section of 4"},
      {"{" + entry("x", "F32", "[1]", "[4,0]") + "}", 4, "begins at byte 4 and ends at 0"},
      {"{" + entry("x", "F32", "[1]", "[4,8]") + "}", 8, "there is a gap"},
      {"{" + entry("x", "F32", "[1]", "[0,4]") + "}", 8, "data section of 8"},
      {"{" + entry("x", "F32", "[2]", "[0,8]") + "," + entry("y", "F32", "[1]", "[4,8]") + "}", 8,
       "overlap"},
      {"{" + entry("x", "F32", "[1]", "[0,4]") + "," + entry("x", "F32", "[1]", "[4,8]") + "}", 8,
       "listed twice"},
      {R"({"x":{"dtype":"F32","shape":[1],"data_offsets":[0,4],"shape":[2]}})", 4, "shape twice"},
      {"{" + entry("x", "F31", "[1]", "[0,4]") + "}", 4, "F31"},
      {"{" + entry("x", "F32", "[-1]", "[0,4]") + "}", 4, "-1 in shape"},
      {"{" + entry("x", "F32", "[1.0]", "[0,4]") + "}", 4, "in shape"},
      {"{" + entry("x", "F32", "[1]", "[0,4,8]") + "}", 4, "3 data_offsets"},
      {"{" + entry("x", "F32", "[4294967296,4294967296]", "[0,0]") + "}", 0, "overflows"},
      {"{" + entry("x", "F32", "[0,9223372036854775807]", "[0,0]") + "}", 0, "overflows"},
      {"{" + entry("x", "F32", "[99999999999999999999]", "[0,0]") + "}", 0, "in shape"},
      {R"({"x":3})", 0, "wanted an object"},
      {R"({"x":{}})", 0, "no dtype"},
      {R"({"__metadata__":{"a":1}})", 0, "__metadata__"},
      {R"([1])", 0, "start with"},
      {R"( {})", 0, "start with"},
      {"", 0, "start with"},
      {"{" + std::string(300, '['), 0, "JSON"},
      {R"({"a":)" + std::string(300, '['), 0, "nested deeper"},
      {"{\"\xff\":1}", 0, "JSON"},
  };
  for (const auto& lie : kLies) {
    EXPECT_NE(safetensors_refusal(file_of(lie.header, lie.data_bytes)).find(lie.complaint),
              std::string::npos)
        << lie.header << " gave " << safetensors_refusal(file_of(lie.header, lie.data_bytes));
  }
}

TEST(Safetensors, HugeHeaderLengthIsRefusedWithoutReading) {
  EXPECT_NE(safetensors_refusal(std::string(8, '\xff')).find("more than the 100000000"),
            std::string::npos);
  std::string file(8, '\0');
  file[3] = 1;  // 16 MiB
  EXPECT_NE(safetensors_refusal(file + "{}").find("truncated"), std::string::npos);
}

TEST(Safetensors, AFullDiskIsARunError) {
  TemporaryFolder folder;
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  const auto old = std::signal(SIGXFSZ, SIG_IGN);
  const rlimit small{4096, before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
  const std::vector<float> data(4096);
  const std::string message = error_of<RunError>([&] {
    write_safetensors(folder / "a", {{"x", Dtype::kF32, {4096}, data.data()}}, {});
  });
  ::setrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, old);
  EXPECT_NE(message.find("cannot write"), std::string::npos);
}

}  // namespace
}  // namespace weft
