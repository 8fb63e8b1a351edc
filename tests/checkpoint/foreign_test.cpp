// tests/checkpoint/foreign_test.cpp: models in the files of other programs are the same models.
#include <gtest/gtest.h>

#include "base/error.h"
#include "checkpoint/digest.h"
#include "checkpoint/export.h"
#include "checkpoint/logical.h"
#include "tests/checkpoint/foreign_files.h"
#include "tests/checkpoint/model_fixture.h"
#include "tests/checkpoint/read_back.h"
#include "tests/io/temporary_folder.h"
#include "tests/io/torch_bytes.h"

namespace weft {
namespace {

namespace fs = std::filesystem;
using testing::digest_of;
using testing::error_of;
using testing::floats;
using testing::kModelConfig;
using testing::kModelShapes;
using testing::model_values;
using testing::put;
using testing::store_folder;
using testing::TemporaryFolder;
using testing::TorchBytes;
using testing::pickled::dict;
using testing::pickled::ordered;

// pytorch_model.bin with the tied head as a second view of the embedding's storage.
void store_torch_folder(const fs::path& folder, bool with_config = true) {
  if (with_config) put(folder / "config.json", kModelConfig);
  TorchBytes torch;
  std::vector<std::pair<std::string, std::string>> entries;
  entries.emplace_back("lm_head.weight", TorchBytes::view(0, 0, {11, 6}, {6, 1}));
  for (const auto& [name, values] : model_values())
    entries.emplace_back(name, torch.tensor(floats(values), kModelShapes.at(name)));
  put(folder / "pytorch_model.bin", torch.file(ordered(dict(entries))));
}

TEST(Foreign, TorchSaveHasTheDigestOfSafetensors) {
  TemporaryFolder folder;
  store_folder(folder / "safe");
  store_torch_folder(folder / "torch");
  EXPECT_EQ(digest_of(folder / "torch").lines, digest_of(folder / "safe").lines);
  export_hf(open_logical((folder / "torch").string()).weights, Json(Json::Object{}), {},
            folder / "out", {});
  EXPECT_EQ(digest_of(folder / "out").weights, digest_of(folder / "safe").weights);
}

TEST(Foreign, AFileTakesItsConfigFromElsewhere) {
  TemporaryFolder folder;
  store_torch_folder(folder / "torch", false);
  store_folder(folder / "safe");
  put(folder / "safe/tokenizer.json", "{}");
  LogicalModel model = open_logical((folder / "torch/pytorch_model.bin").string());
  EXPECT_EQ(model.format, "PyTorch file");
  EXPECT_TRUE(model.config.is_null());
  EXPECT_TRUE(read_side_files(model).empty());
  use_config_of(model, folder / "safe");
  EXPECT_EQ(model.config.at("model_type").as_string(), "llama");
  EXPECT_EQ(read_side_files(model).size(), 1u);
}

TEST(Foreign, TensorsThatCannotBeReadAreNamed) {
  TemporaryFolder folder;
  TorchBytes torch;
  const std::string good = torch.tensor(floats({1}), {1});
  const std::string bad = torch.tensor(std::string(8, '\0'), {1}, "ComplexFloatStorage");
  put(folder / "a.pt", torch.file(dict({{"good", good}, {"bad", bad}})));
  const LogicalModel model = open_logical((folder / "a.pt").string());
  EXPECT_EQ(model.weights.size(), 1u);
  EXPECT_EQ(model.unread.size(), 1u);
  EXPECT_NE(error_of<UserError>([&] { require_all_read(model); }).find("\"bad\" is of torch.Compl"),
            std::string::npos);
}

}  // namespace
}  // namespace weft
