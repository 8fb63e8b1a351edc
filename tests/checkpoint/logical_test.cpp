// tests/checkpoint/logical_test.cpp: hash, diff and export see the same model in every storage.
#include "checkpoint/logical.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <condition_variable>
#include <cstring>
#include <mutex>

#include "base/byte_size.h"
#include "base/error.h"
#include "base/file.h"
#include "base/mapped_files.h"
#include "checkpoint/compare.h"
#include "checkpoint/digest.h"
#include "checkpoint/export.h"
#include "io/hf_folder.h"
#include "tests/checkpoint/model_fixture.h"
#include "tests/checkpoint/read_back.h"
#include "tests/io/temporary_folder.h"

namespace weft {
namespace {

namespace fs = std::filesystem;
using testing::digest_of;
using testing::error_of;
using testing::store_checkpoint;
using testing::store_folder;
using testing::TemporaryFolder;

TEST(Logical, OneDigestForEveryStorage) {
  TemporaryFolder folder;
  store_folder(folder / "hf");
  store_folder(folder / "hf_with_head", true);
  store_checkpoint(folder / "one", 1, 1, 0);
  store_checkpoint(folder / "rows", 1, 3, 0);
  store_checkpoint(folder / "columns", 2, 2, 1);
  store_checkpoint(folder / "masters", 3, 2, 1, true);
  store_checkpoint(folder / "run/checkpoints/step-00000012", 2, 1, 0);
  const ModelDigest base = digest_of(folder / "one");
  ASSERT_EQ(base.lines.size(), 12u);
  EXPECT_TRUE(base.lines[0].starts_with("model.embed_tokens.weight [11,6] fp32 "));
  for (const char* other : {"rows", "columns", "masters", "run"}) {
    EXPECT_EQ(digest_of(folder / other).lines, base.lines) << other;
    EXPECT_EQ(digest_of(folder / other).weights, base.weights) << other;
    EXPECT_EQ(digest_of(folder / other).states, base.states) << other;
  }
  for (const char* other : {"hf", "hf_with_head", "hf/model.safetensors"}) {
    EXPECT_EQ(digest_of(folder / other).weights, base.weights) << other;
    EXPECT_EQ(digest_of(folder / other).states, "") << other;
  }
  // Negative control: one nudged element changes the digest.
  store_checkpoint(folder / "nudged", 2, 2, 1, false, true, 0.5f);
  EXPECT_NE(digest_of(folder / "nudged").weights, base.weights);
  EXPECT_EQ(digest_of(folder / "nudged").states, base.states);
}

// A checkpoint of bf16 with masters holds a weight twice: it is listed once, as its master.
TEST(Logical, AMasterReplacesItsWeight) {
  TemporaryFolder folder;
  std::vector<uint16_t> half(6, 0x3f80);
  std::vector<float> master(6, 1.001f), m(6, 0.5f);
  write_checkpoint(folder / "c",
                   {whole_tensor("a.weight", {6}, Dtype::kBf16, half.data()),
                    whole_tensor("a.weight#master", {6}, Dtype::kF32, master.data()),
                    whole_tensor("a.weight#m", {6}, Dtype::kF32, m.data()),
                    whole_tensor("b.weight", {6}, Dtype::kBf16, half.data())},
                   Json(Json::Object{}), {{"config.json", "{}"}});
  const LogicalModel model = open_logical((folder / "c").string());
  ASSERT_EQ(model.weights.size(), 2u);
  EXPECT_EQ(model.weights[0].name, "a.weight");
  EXPECT_EQ(model.weights[0].dtype, Dtype::kF32);
  EXPECT_EQ(model.weights[1].name, "b.weight");
  EXPECT_EQ(model.weights[1].dtype, Dtype::kBf16);
  ASSERT_EQ(model.states.size(), 1u);
  EXPECT_EQ(model.states[0].name, "a.weight#m");
}

TEST(Logical, NonModelsAreReported) {
  TemporaryFolder folder;
  auto refusal = [](const fs::path& path) {
    return error_of<UserError>([&] { open_logical(path.string()); });
  };
  EXPECT_NE(refusal(folder.path()).find("holds no model"), std::string::npos);
  fs::create_directories(folder / "run/checkpoints/step-00000001");
  EXPECT_NE(refusal(folder / "run").find("no complete checkpoint"), std::string::npos);
  EXPECT_NE(refusal(folder / "nothing").find("no folder"), std::string::npos);
}

TEST(Compare, FindsTheElement) {
  TemporaryFolder folder;
  store_checkpoint(folder / "a", 2, 2, 1);
  store_checkpoint(folder / "b", 1, 1, 0);
  store_checkpoint(folder / "c", 3, 1, 0, false, false, 0.5f);
  const LogicalModel a = open_logical((folder / "a").string());
  const Comparison same = compare_models(a, open_logical((folder / "b").string()));
  EXPECT_TRUE(same.differences.empty());
  EXPECT_TRUE(same.states_compared);
  EXPECT_EQ(same.num_compared, 12);
  const Comparison other = compare_models(a, open_logical((folder / "c").string()));
  EXPECT_FALSE(other.states_compared);
  ASSERT_EQ(other.differences.size(), 1u);
  const TensorDifference& d = other.differences[0];
  EXPECT_EQ(d.name, "model.norm.weight");
  EXPECT_EQ(d.max_difference, 0.5);
  EXPECT_EQ(d.first_index, (Shape{5}));
  EXPECT_EQ(d.num_different, 1);
  EXPECT_EQ(d.num_elements, 6);
}

LogicalModel model_of(std::vector<LogicalTensor> weights) {
  LogicalModel model;
  model.weights = std::move(weights);
  return model;
}

// Two tensors: each read waits until the read of the other tensor has begun.
TEST(Compare, TensorsAreReadByThreads) {
  std::mutex mutex;
  std::condition_variable changed;
  int num_begun = 0;
  bool have_met = true;
  const auto read = [&](int64_t begin, int64_t end, void* out) {
    std::unique_lock lock(mutex);
    ++num_begun;
    changed.notify_all();
    const auto both_begun = [&] { return num_begun >= 2; };
    have_met = changed.wait_for(lock, std::chrono::seconds(20), both_begun) && have_met;
    std::memset(out, 0, static_cast<size_t>(end - begin) * 4);
  };
  const LogicalModel model =
      model_of({{"x", {3}, Dtype::kF32, read}, {"y", {5}, Dtype::kF32, read}});
  const ModelDigest digest = digest_model(model);
  EXPECT_TRUE(have_met);
  ASSERT_EQ(digest.lines.size(), 2u);
  EXPECT_TRUE(digest.lines[0].starts_with("x [3] ")) << digest.lines[0];
  num_begun = 0;
  EXPECT_EQ(compare_models(model, model).num_compared, 2);
  EXPECT_TRUE(have_met);
}

TEST(Compare, BitsTypesAndNames) {
  const float a[2] = {0.0f, NAN}, b[2] = {-0.0f, 1.0f};
  const Bf16 c[2] = {to_bf16(0.0f), to_bf16(3.0f)};
  const auto diff = [](LogicalTensor x, LogicalTensor y) {
    return compare_models(model_of({x}), model_of({y})).differences;
  };
  const LogicalTensor x = tensor_in_memory("x", {2}, Dtype::kF32, a);
  const auto bits = diff(x, tensor_in_memory("x", {2}, Dtype::kF32, b));
  ASSERT_EQ(bits.size(), 1u);
  EXPECT_EQ(bits[0].num_different, 2);  // 0 and -0 differ in bits, not in value
  EXPECT_TRUE(std::isnan(bits[0].max_difference));
  EXPECT_TRUE(diff(x, x).empty());  // NaN is equal to itself in bits
  const auto types =
      diff(tensor_in_memory("x", {2}, Dtype::kF32, b), tensor_in_memory("x", {2}, Dtype::kBf16, c));
  ASSERT_EQ(types.size(), 1u);
  EXPECT_EQ(types[0].num_different, 1);
  EXPECT_EQ(types[0].max_difference, 2.0);
  EXPECT_EQ(types[0].fault, "dtype fp32 and bf16");
  EXPECT_EQ(diff(x, tensor_in_memory("x", {1, 2}, Dtype::kF32, b))[0].fault,
            "shape (2) and (1, 2)");
  const auto names = diff(x, tensor_in_memory("y", {2}, Dtype::kF32, a));
  ASSERT_EQ(names.size(), 2u);
  EXPECT_EQ(names[0].fault, "only in A");
  EXPECT_EQ(names[1].fault, "only in B");
}

// Tensors are compared a million elements at a time.
TEST(Compare, ALongTensorPieceByPiece) {
  const int64_t piece = 1 << 20;
  std::vector<float> a(static_cast<size_t>(2 * piece + 6), 1.0f), b = a;
  b[static_cast<size_t>(piece + 1)] = 1.25f;
  b[static_cast<size_t>(2 * piece + 5)] = 0.5f;
  const Shape shape{piece + 3, 2};
  const auto diff = compare_models(model_of({tensor_in_memory("x", shape, Dtype::kF32, a.data())}),
                                   model_of({tensor_in_memory("x", shape, Dtype::kF32, b.data())}))
                        .differences;
  ASSERT_EQ(diff.size(), 1u);
  EXPECT_EQ(to_string(diff[0]), "x max_diff 0.5 different 2 of 2097158 first (524288, 1) 1 1.25");
}

// A tensor without elements is compared, hashed and exported like any other.
TEST(Logical, ATensorMayBeEmpty) {
  TemporaryFolder folder;
  const float one = 1;
  const LogicalModel model = model_of({tensor_in_memory("a", {0, 3}, Dtype::kF32, &one),
                                       tensor_in_memory("b", {1}, Dtype::kF32, &one)});
  EXPECT_TRUE(compare_models(model, model).differences.empty());
  EXPECT_EQ(digest_model(model).lines.size(), 2u);
  export_hf(model.weights, parse_json("{}", "c"), {}, folder / "out", {});
  const LogicalModel read = open_logical((folder / "out/model.safetensors").string());
  ASSERT_EQ(read.weights.size(), 2u);
  EXPECT_EQ(read.weights[0].shape, (Shape{0, 3}));
  EXPECT_TRUE(compare_models(model, read).differences.empty());
}

TEST(IsExport, RequiresAConfigAndWeights) {
  TemporaryFolder folder;
  const auto with = [&](const std::vector<std::string>& names) {
    fs::remove_all(folder / "x");
    fs::create_directories(folder / "x");
    for (const std::string& name : names) write_file_atomic(folder / "x" / name, "{}");
    return is_export(folder / "x");
  };
  EXPECT_TRUE(with({"config.json", "model.safetensors"}));
  EXPECT_TRUE(with({"config.json", "model-00001-of-00002.safetensors"}));
  EXPECT_FALSE(with({"model.safetensors"}));
  EXPECT_FALSE(with({"config.json"}));
  EXPECT_FALSE(with({"config.json", "model.bin"}));
  EXPECT_FALSE(with({"config.json", "rank-00000.safetensors"}));
}

class Export : public ::testing::Test {
 protected:
  Export() { store_checkpoint(folder_ / "c", 2, 2, 1, true); }
  void write(const char* out, const ExportOptions& options) {
    const LogicalModel model = open_logical((folder_ / "c").string());
    export_hf(model.weights, model.config, read_side_files(model), folder_ / out, options);
  }
  TemporaryFolder folder_;
};

TEST_F(Export, AsStoredHasTheSameWeights) {
  write("out", {});
  EXPECT_EQ(digest_of(folder_ / "out").weights, digest_of(folder_ / "c").weights);
  EXPECT_EQ(read_file(folder_ / "out/tokenizer.json"), "{}");
  EXPECT_FALSE(fs::exists(folder_ / "out/state.json"));
  const std::string config = read_file(folder_ / "out/config.json");
  EXPECT_NE(config.find("\"initializer_range\": 1.0"), std::string::npos) << config;
  EXPECT_NE(config.find("\"torch_dtype\": \"float32\""), std::string::npos) << config;
}

TEST_F(Export, ShardsAndConverts) {
  ExportOptions options;
  options.dtype = Dtype::kBf16;
  options.max_shard_bytes = 200;
  write("out", options);
  EXPECT_TRUE(fs::exists(folder_ / "out/model-00001-of-00003.safetensors"));
  const HfFolder hf(folder_ / "out");
  EXPECT_EQ(hf.config().at("torch_dtype").as_string(), "bfloat16");
  EXPECT_EQ(hf.files().size(), 3u);
  const Comparison d = compare_models(open_logical((folder_ / "c").string()),
                                      open_logical((folder_ / "out").string()));
  for (const TensorDifference& t : d.differences) EXPECT_EQ(t.fault, "dtype fp32 and bf16");
  EXPECT_EQ(d.differences.size(), 4u);
}

// With tensors of two dtypes, config.json names that of most elements.
TEST_F(Export, TheDtypeIsThatOfMostElements) {
  const std::vector<float> few = {1, 2};
  const std::vector<uint16_t> many(8, 0);
  const Json config(Json::Object{{"model_type", "llama"}, {"torch_dtype", "float32"}});
  export_hf({tensor_in_memory("few", {2}, Dtype::kF32, few.data()),
             tensor_in_memory("many", {8}, Dtype::kBf16, many.data())},
            config, {}, folder_ / "out", {});
  EXPECT_EQ(HfFolder(folder_ / "out").config().at("torch_dtype").as_string(), "bfloat16");
}

// An exact fit is one file; one byte less makes two, which need an index.
TEST_F(Export, TwoShardsHaveAnIndex) {
  ExportOptions options;
  options.max_shard_bytes = 0;
  for (const LogicalTensor& t : open_logical((folder_ / "c").string()).weights) {
    options.max_shard_bytes += static_cast<size_t>(num_elements(t.shape) * dtype_bytes(t.dtype));
  }
  write("one", options);
  EXPECT_TRUE(fs::exists(folder_ / "one/model.safetensors"));
  EXPECT_FALSE(fs::exists(folder_ / "one/model.safetensors.index.json"));
  --options.max_shard_bytes;
  write("two", options);
  EXPECT_EQ(HfFolder(folder_ / "two").files().size(), 2u);
  EXPECT_TRUE(fs::exists(folder_ / "two/model.safetensors.index.json"));
  EXPECT_EQ(digest_of(folder_ / "two").weights, digest_of(folder_ / "c").weights);
}

// A weights file that is truncated meanwhile reads as zeros: these must never replace a good
// export.
TEST_F(Export, ZerosOfATruncatedFileAreNotExported) {
  forget_lost_files();  // of other tests
  std::ofstream(folder_ / "weights", std::ios::binary) << std::string(1 << 20, 'x');
  const auto map = std::make_shared<MappedFile>(folder_ / "weights");
  const LogicalTensor tensor{
      "x", {1 << 18}, Dtype::kF32, [&](int64_t begin, int64_t end, void* out) {
        fs::resize_file(folder_ / "weights", 4096);
        std::memcpy(out, map->text().data() + begin * 4, static_cast<size_t>(end - begin) * 4);
      }};
  const Json config(Json::Object{{"model_type", "llama"}});
  const std::string complaint =
      error_of<RunError>([&] { export_hf({tensor}, config, {}, folder_ / "out", {}); });
  EXPECT_NE(complaint.find("weights changed while it was in use"), std::string::npos) << complaint;
  EXPECT_FALSE(fs::exists(folder_ / "out"));
  EXPECT_EQ(std::distance(fs::directory_iterator(folder_ / "."), {}), 2) << "c and weights";
  forget_lost_files();
}

TEST_F(Export, NothingIsOverwritten) {
  fs::create_directories(folder_ / "taken");
  std::ofstream(folder_ / "taken/thesis.txt") << "years";
  ExportOptions overwrite;
  overwrite.overwrite = true;
  EXPECT_NE(error_of<UserError>([&] { write("taken", overwrite); }).find("not an export"),
            std::string::npos);
  EXPECT_EQ(read_file(folder_ / "taken/thesis.txt"), "years");
  EXPECT_NE(error_of<UserError>([&] { write("c", overwrite); }).find("not an export"),
            std::string::npos);
  write("out", {});
  EXPECT_NE(error_of<UserError>([&] { write("out", {}); }).find("--overwrite"), std::string::npos);
  overwrite.max_shard_bytes = 200;
  write("out", overwrite);
  EXPECT_FALSE(fs::exists(folder_ / "out/model.safetensors"));
  EXPECT_EQ(digest_of(folder_ / "out").weights, digest_of(folder_ / "c").weights);
  EXPECT_FALSE(fs::exists(folder_ / "out.writing"));
}

TEST(ByteSize, Units) {
  EXPECT_EQ(parse_byte_size("5GB", "--size"), 5'000'000'000u);
  EXPECT_EQ(parse_byte_size("2GiB", "--size"), size_t{1} << 31);
  EXPECT_EQ(parse_byte_size("1.5KB", "--size"), 1500u);
  EXPECT_EQ(parse_byte_size("123", "--size"), 123u);
  EXPECT_EQ(parse_byte_size("16gb", "--size"), 16'000'000'000u);
  EXPECT_NE(error_of<UserError>([&] {
              parse_byte_size("16G", "--size");
            }).find("--size \"16G\": wanted a number and its unit (B, KB, MB, GB"),
            std::string::npos);
  for (const char* bad : {"", "GB", "5 GB", "-1", "5XB", "0", "1e9", ".", "99999999999999TB"}) {
    EXPECT_NE(error_of<UserError>([&] { parse_byte_size(bad, "--size"); }).find("wanted"),
              std::string::npos)
        << bad;
  }
}

}  // namespace
}  // namespace weft
