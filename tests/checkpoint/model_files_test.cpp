// tests/checkpoint/model_files_test.cpp: checkpoint folders of other programs as model.path.
#include "checkpoint/model_files.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "checkpoint/export_torch.h"
#include "checkpoint/foreign.h"
#include "io/hf_folder.h"
#include "tests/checkpoint/model_fixture.h"
#include "tests/io/temporary_folder.h"

namespace weft {
namespace {

namespace fs = std::filesystem;
using testing::error_of;
using testing::kModelShapes;
using testing::model_values;
using testing::store_checkpoint;
using testing::TemporaryFolder;

class ModelFiles : public ::testing::Test {
 protected:
  ModelFiles() {
    read_models_of_others();
    store_checkpoint(folder_ / "c", 2, 1, 0);
    const LogicalModel model = open_logical((folder_ / "c").string());
    ExportOptions options;
    options.max_shard_bytes = 100;  // tensors in several chunks
    export_dcp(model, std::nullopt, folder_ / "run/dcp", options);
    export_deepspeed(model, std::nullopt, folder_ / "run/deepspeed", {});
  }
  ~ModelFiles() override { set_foreign_weights({none, nullptr}); }
  static std::optional<fs::path> none(const fs::path&) { return std::nullopt; }

  void expect_model(const std::string& name, const std::string& config_folder) const {
    const HfFolder hf(folder_ / name);
    EXPECT_TRUE(hf.has_weights());
    EXPECT_EQ(hf.path(), folder_ / config_folder);
    EXPECT_EQ(hf.config().at("model_type").as_string(), "llama");
    EXPECT_EQ(hf.tensor_names().size(), kModelShapes.size());  // the tied head once
    for (const auto& [tensor, values] : model_values()) {
      const auto [file, info] = hf.find(tensor);
      ASSERT_NE(file, nullptr) << tensor;
      EXPECT_FALSE(file->is_mapped());
      EXPECT_EQ(info->shape, kModelShapes.at(tensor));
      std::vector<float> part(values.size() - 2);
      file->read(*info, 1, static_cast<int64_t>(values.size()) - 1, part.data());
      EXPECT_EQ(part, std::vector<float>(values.begin() + 1, values.end() - 1));
      const auto* all = reinterpret_cast<const float*>(file->data(*info));
      EXPECT_EQ(std::vector<float>(all, all + values.size()), values);
      file->drop_pages();
    }
  }
  TemporaryFolder folder_;
};

TEST_F(ModelFiles, ConfigInTheFolder) {
  expect_model("run/dcp", "run/dcp");
  expect_model("run/deepspeed", "run/deepspeed");
  expect_model("run/deepspeed/global_step0", "run/deepspeed");
}

TEST_F(ModelFiles, ConfigAboveTheFolder) {
  fs::rename(folder_ / "run/dcp/config.json", folder_ / "run/config.json");
  fs::remove(folder_ / "run/deepspeed/config.json");
  expect_model("run/dcp", "run");
  expect_model("run/deepspeed", "run");
}

TEST_F(ModelFiles, WithoutAConfigTheMessageSaysWhatToDo) {
  for (const char* name : {"run/dcp", "run/deepspeed"}) {
    fs::remove(folder_ / name / "config.json");
    const std::string message = error_of<UserError>([&] { HfFolder{folder_ / name}; });
    EXPECT_NE(message.find((folder_ / "run").string() + " has config.json"), std::string::npos)
        << message;
    EXPECT_NE(message.find("--config MODEL"), std::string::npos) << message;
  }
}

// Weights of its own come first: a folder may hold both.
TEST_F(ModelFiles, AHuggingFaceFolderStaysOne) {
  testing::store_folder(folder_ / "run/dcp");
  const HfFolder hf(folder_ / "run/dcp");
  EXPECT_TRUE(hf.files().at(0)->is_mapped());
}

}  // namespace
}  // namespace weft
