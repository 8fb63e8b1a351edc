// tests/io/hf_folder_test.cpp: one file, shards, what is missing, and the cache.
#include "io/hf_folder.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>

#include "base/error.h"
#include "tests/io/temporary_folder.h"
#include "tests/io/torch_bytes.h"

namespace weft {
namespace {

namespace fs = std::filesystem;
using testing::error_of;
using testing::TemporaryFolder;

const float kData[4] = {1, 2, 3, 4};

void put(const fs::path& path, const std::string& text) {
  fs::create_directories(path.parent_path());
  std::ofstream(path) << text;
}

TEST(HfFolder, SingleFile) {
  TemporaryFolder folder;
  put(folder / "config.json", R"({"model_type": "llama"})");
  put(folder / "generation_config.json", "{}");
  write_safetensors(folder / "model.safetensors",
                    {{"b", Dtype::kF32, {4}, kData}, {"a", Dtype::kF32, {2}, kData}}, {});
  const HfFolder hf(folder.path());
  EXPECT_EQ(hf.config().at("model_type").as_string(), "llama");
  EXPECT_EQ(hf.tensor_names(), (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(hf.find("b").info->shape, (Shape{4}));
  EXPECT_EQ(hf.find("c").file, nullptr);
  EXPECT_EQ(hf.side_files().size(), 1u);
}

// As transformers generates; what config.json has comes first.
TEST(HfFolder, ADecoderMayStartWithTheGenerationConfigsToken) {
  TemporaryFolder folder;
  const auto start_of = [&](const std::string& config) {
    put(folder / "config.json", config);
    const Json read = HfFolder(folder.path()).config();
    const Json* id = read.find("decoder_start_token_id");
    return id ? id->as_int() : -2;
  };
  const std::string pair = R"({"is_encoder_decoder": true, "pad_token_id": 1)";
  EXPECT_EQ(start_of(pair + "}"), -2);
  put(folder / "generation_config.json", R"({"decoder_start_token_id": 5})");
  EXPECT_EQ(start_of(pair + "}"), 5);
  EXPECT_EQ(start_of(pair + R"(, "decoder_start_token_id": -1})"), 5);
  EXPECT_EQ(start_of(pair + R"(, "decoder_start_token_id": 3})"), 3);
  EXPECT_EQ(start_of(R"({"is_encoder_decoder": false})"), -2);
  put(folder / "generation_config.json", R"({"decoder_start_token_id": -1})");
  EXPECT_EQ(start_of(pair + "}"), -2);
}

TEST(HfFolder, ShardsAndAMissingOne) {
  TemporaryFolder folder;
  put(folder / "config.json", "{}");
  put(folder / "model.safetensors.index.json",
      R"({"metadata": {}, "weight_map": {"a": "m-1.safetensors", "b": "m-2.safetensors"}})");
  write_safetensors(folder / "m-1.safetensors", {{"a", Dtype::kF32, {2}, kData}}, {});
  EXPECT_NE(error_of<UserError>([&] {
              HfFolder(folder.path()).open_weights();
            }).find("m-2.safetensors is missing"),
            std::string::npos);
  write_safetensors(folder / "m-2.safetensors", {{"c", Dtype::kF32, {2}, kData}}, {});
  EXPECT_NE(
      error_of<UserError>([&] { HfFolder(folder.path()).open_weights(); }).find("no tensor \"b\""),
      std::string::npos);
  write_safetensors(folder / "m-2.safetensors", {{"b", Dtype::kF32, {4}, kData}}, {});
  const HfFolder hf(folder.path());
  EXPECT_EQ(hf.find("b").info->shape, (Shape{4}));
  EXPECT_EQ(hf.find("a").file->path().filename(), "m-1.safetensors");
}

TEST(HfFolder, AShardMayNotLeadOutOfTheFolder) {
  TemporaryFolder folder;
  put(folder / "config.json", "{}");
  for (const char* name : {"../a", "/a", "..", "", "x/a"}) {
    put(folder / "model.safetensors.index.json",
        fmt::format(R"({{"weight_map": {{"a": "{}"}}}})", name));
    EXPECT_NE(error_of<UserError>([&] {
                HfFolder(folder.path()).open_weights();
              }).find("wanted a file in this folder"),
              std::string::npos)
        << name;
  }
}

TEST(HfFolder, WhatIsMissingIsNamed) {
  TemporaryFolder folder;
  EXPECT_NE(error_of<UserError>([&] { HfFolder(folder.path()); }).find("no config.json"),
            std::string::npos);
  put(folder / "config.json", "[]");
  EXPECT_NE(error_of<UserError>([&] { HfFolder(folder.path()); }).find("wanted an object"),
            std::string::npos);
  put(folder / "config.json", "{}");
  EXPECT_NE(error_of<UserError>([&] {
              HfFolder(folder.path()).tensor_names();
            }).find("neither model.safetensors"),
            std::string::npos);
  put(folder / "pytorch_model.bin", "");
  EXPECT_NE(error_of<UserError>([&] { HfFolder(folder.path()).tensor_names(); }).find("not a zip"),
            std::string::npos);
}

TEST(HfFolder, WeightsOfTorchSave) {
  TemporaryFolder folder;
  put(folder / "config.json", "{}");
  testing::TorchBytes torch;
  const std::string a = torch.tensor(testing::floats({5, 6}), {2});
  const std::string complex = torch.tensor(std::string(8, '\0'), {1}, "ComplexFloatStorage");
  put(folder / "pytorch_model.bin", torch.file(testing::pickled::dict({{"a", a}, {"c", complex}})));
  const HfFolder hf(folder.path());
  EXPECT_TRUE(hf.has_weights());
  EXPECT_EQ(hf.tensor_names(), (std::vector<std::string>{"a", "c"}));
  const auto [file, info] = hf.find("a");
  EXPECT_EQ(reinterpret_cast<const float*>(file->data(*info))[1], 6);
  EXPECT_NE(error_of<UserError>([&] { hf.find("c"); }).find("\"c\" is of torch.ComplexFloat"),
            std::string::npos);
  // safetensors win.
  write_safetensors(folder / "model.safetensors", {{"b", Dtype::kF32, {4}, kData}}, {});
  EXPECT_EQ(HfFolder(folder.path()).tensor_names(), (std::vector<std::string>{"b"}));
}

TEST(HfFolder, ShardsOfTorchSave) {
  TemporaryFolder folder;
  put(folder / "config.json", "{}");
  const auto index = [&](const std::string& shard) {
    put(folder / "pytorch_model.bin.index.json",
        fmt::format(R"({{"weight_map": {{"a": "m-1.bin", "b": "{}"}}}})", shard));
    return error_of<UserError>([&] { HfFolder(folder.path()).open_weights(); });
  };
  testing::TorchBytes one, two;
  put(folder / "m-1.bin",
      one.file(testing::pickled::dict({{"a", one.tensor(testing::floats({1}), {1})}})));
  EXPECT_NE(index("m-2.bin").find("m-2.bin is missing"), std::string::npos);
  for (const char* name : {"../m-1.bin", "/etc/passwd", "x/m-2.bin"})
    EXPECT_NE(index(name).find("wanted a file in this folder"), std::string::npos) << name;
  put(folder / "m-2.bin",
      two.file(testing::pickled::dict({{"b", two.tensor(testing::floats({2}), {1})}})));
  put(folder / "pytorch_model.bin.index.json",
      R"({"weight_map": {"a": "m-1.bin", "b": "m-2.bin"}})");
  const HfFolder hf(folder.path());
  const auto [file, info] = hf.find("b");
  EXPECT_EQ(file->path().filename(), "m-2.bin");
  EXPECT_EQ(reinterpret_cast<const float*>(file->data(*info))[0], 2);
}

class HubCache : public ::testing::Test {
 protected:
  void SetUp() override {
    ::unsetenv("HF_HUB_CACHE");
    ::setenv("HF_HOME", folder_.path().c_str(), 1);
    put(model_ / "refs/main", "c0ffee\n");
    put(model_ / "refs/refs/pr/1", "decade");
    put(model_ / "snapshots/c0ffee/config.json", "{}");
    put(model_ / "snapshots/decade/config.json", "{}");
  }
  void TearDown() override {
    ::unsetenv("HF_HOME");
    ::unsetenv("HF_HUB_CACHE");
  }
  TemporaryFolder folder_;
  fs::path model_ = folder_ / "hub/models--Org--Some.Model-1";
};

TEST_F(HubCache, FindsRevisions) {
  EXPECT_EQ(resolve_model_path("Org/Some.Model-1"), model_ / "snapshots/c0ffee");
  EXPECT_EQ(resolve_model_path("Org/Some.Model-1@main"), model_ / "snapshots/c0ffee");
  EXPECT_EQ(resolve_model_path("Org/Some.Model-1@decade"), model_ / "snapshots/decade");
  EXPECT_EQ(resolve_model_path("Org/Some.Model-1@refs/pr/1"), model_ / "snapshots/decade");
  EXPECT_EQ(resolve_model_path(model_.string()), model_);
  ::setenv("HF_HUB_CACHE", (folder_ / "hub").c_str(), 1);
  ::setenv("HF_HOME", "/nowhere", 1);
  EXPECT_EQ(resolve_model_path("Org/Some.Model-1"), model_ / "snapshots/c0ffee");
}

TEST_F(HubCache, AbsentModelsNameTheDownloadCommand) {
  auto refusal = [](const char* name) {
    return error_of<UserError>([&] { resolve_model_path(name); });
  };
  EXPECT_NE(refusal("Org/Other").find("hf download Org/Other"), std::string::npos);
  EXPECT_NE(refusal("t5-small").find("hf download t5-small"), std::string::npos);
  EXPECT_NE(refusal("Org/Other@v1").find("hf download Org/Other --revision v1"), std::string::npos);
  for (const char* name : {"./Org", "/a/b", "a/b/c", "../x", "a/", "a b", "Org/Some.Model-1@",
                           "Org/Some.Model-1@../../x", "Org/.x", "a..b"}) {
    EXPECT_NE(refusal(name).find("no folder"), std::string::npos) << name;
  }
}

// A mistyped local path needs no hint about the hub.
TEST_F(HubCache, LocalPathsAreNotHubNames) {
  const std::string here = model_.parent_path().string();
  for (const std::string& name : {std::string("./model"), std::string("../model"), here + "/other",
                                  std::string("model.safetensors"), std::string("run.yaml")}) {
    try {
      resolve_model_path(name);
      FAIL() << name;
    } catch (const UserError& e) {
      EXPECT_EQ(std::string(e.what()), "there is no folder or file " + name);
      EXPECT_EQ(e.hint(), "") << name;
    }
  }
  // A name in an existing folder is local, unless the cache has it.
  const auto before = std::filesystem::current_path();
  std::filesystem::create_directory(folder_ / "Org");
  std::filesystem::current_path(folder_.path());
  const auto found = resolve_model_path("Org/Some.Model-1");
  const std::string refused = error_of<UserError>([] { resolve_model_path("Org/Othr"); });
  std::filesystem::current_path(before);
  EXPECT_EQ(found, model_ / "snapshots/c0ffee");
  EXPECT_EQ(refused.find("hf download"), std::string::npos) << refused;
}

}  // namespace
}  // namespace weft
