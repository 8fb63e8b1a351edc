// tests/model/load_test.cpp: a parameter as stored, converted, and every way a file can be wrong.
#include "model/load.h"

#include <gtest/gtest.h>

#include <fstream>

#include "base/error.h"
#include "tests/io/temporary_folder.h"

namespace weft {
namespace {

using testing::error_of;
using testing::TemporaryFolder;

const float kFloats[6] = {1, -2, 0.5f, 3.1415927f, 1e-8f, 65504};
const int32_t kInts[6] = {1, 2, 3, 4, 5, 6};

// A folder whose one tensor, "w" (2, 3), is of the given type.
HfFolder folder_with(const TemporaryFolder& folder, Dtype dtype) {
  std::ofstream(folder / "config.json") << "{}";
  std::vector<std::byte> bytes(static_cast<size_t>(6 * dtype_bytes(dtype)));
  if (dtype == Dtype::kI32) {
    std::memcpy(bytes.data(), kInts, sizeof kInts);
  } else {
    convert_elements(kFloats, Dtype::kF32, bytes.data(), dtype, 6);
  }
  write_safetensors(folder / "model.safetensors", {{"w", dtype, {2, 3}, bytes.data()}}, {});
  return HfFolder(folder.path());
}

ParameterSpec spec(std::string name, Shape shape) {
  return {std::move(name), std::move(shape), {}, {}};
}

TEST(LoadParameter, EveryStoredTypeAsFp32) {
  for (Dtype stored : {Dtype::kF32, Dtype::kBf16, Dtype::kF16, Dtype::kF64}) {
    TemporaryFolder folder;
    const HfFolder hf = folder_with(folder, stored);
    float got[6];
    load_parameter(hf, spec("w", {2, 3}), Dtype::kF32, got);
    for (int i = 0; i < 6; ++i) {
      std::byte rounded[8];
      store_element(rounded, stored, 0, kFloats[i]);
      EXPECT_EQ(got[i], load_element(rounded, stored, 0)) << dtype_name(stored) << " element " << i;
    }
  }
}

TEST(LoadParameter, ToBf16RoundsOnce) {
  TemporaryFolder folder;
  const HfFolder hf = folder_with(folder, Dtype::kF32);
  Bf16 got[6];
  load_parameter(hf, spec("w", {2, 3}), Dtype::kBf16, got);
  for (int i = 0; i < 6; ++i) EXPECT_EQ(got[i].bits, to_bf16(kFloats[i]).bits);
}

// exists() throws filesystem_error for a link that leads back to itself.
TEST(LoadParameter, ALoopOfLinksIsNamed) {
  TemporaryFolder folder;
  std::ofstream(folder / "config.json") << "{}";
  std::filesystem::create_symlink("model.safetensors", folder / "model.safetensors");
  EXPECT_NE(error_of<UserError>([&] {
              HfFolder(folder.path()).open_weights();
            }).find("model.safetensors is a symbolic link that leads back to itself"),
            std::string::npos);
}

// A bias was trained with its weight; other unknown tensors (old buffers, towers) are only
// reported.
TEST(LoadParameter, ABiasThatTheConfigurationLacksIsRefused) {
  const Json config = parse_json(R"({"model_type": "llama", "hidden_size": 8,
      "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2,
      "num_key_value_heads": 2, "vocab_size": 32, "max_position_embeddings": 16,
      "rms_norm_eps": 1e-5, "hidden_act": "silu", "tie_word_embeddings": false})",
                                 "config");
  const auto error = [&](const std::string& name) {
    return error_of<UserError>([&] { warn_of_unknown_tensors({name}, config, "folder"); });
  };
  EXPECT_NE(
      error("model.layers.0.self_attn.q_proj.bias")
          .find("folder has a tensor \"model.layers.0.self_attn.q_proj.bias\", but config.json "
                "defines \"model.layers.0.self_attn.q_proj.weight\" without a bias"),
      std::string::npos);
  EXPECT_NE(error("lm_head.bias"), "");
  EXPECT_NO_THROW(
      warn_of_unknown_tensors({"model.layers.0.self_attn.rotary_emb.inv_freq"}, config, "folder"));
  EXPECT_NO_THROW(warn_of_unknown_tensors({"vision.q_proj.bias"}, config, "folder"));
}

TEST(LoadParameter, MissingTensorIsNamed) {
  TemporaryFolder folder;
  const HfFolder hf = folder_with(folder, Dtype::kF32);
  float got[6];
  std::string e = error_of<UserError>([&] {
    load_parameter(hf, spec("v", {2, 3}), Dtype::kF32, got);
  });
  EXPECT_NE(e.find("no tensor \"v\" (2, 3)"), std::string::npos) << e;
  EXPECT_NE(e.find(folder.path().string()), std::string::npos) << e;
  e = error_of<UserError>([&] {
    load_parameter(hf, spec("lm_head.weight", {2, 3}), Dtype::kF32, got);
  });
  EXPECT_NE(e.find("tie_word_embeddings"), std::string::npos) << e;
}

// Files of a base model: "h.0.w" for "transformer.h.0.w".
TEST(LoadParameter, NamesMayLackTheBasePrefix) {
  TemporaryFolder folder;
  const HfFolder hf = folder_with(folder, Dtype::kF32);
  for (const char* name : {"transformer.w", "model.w", "w"}) {
    float got[6] = {};
    load_parameter(hf, spec(name, {2, 3}), Dtype::kF32, got);
    EXPECT_EQ(got[3], kFloats[3]) << name;
  }
  float got[6];
  const std::string e = error_of<UserError>([&] {
    load_parameter(hf, spec("encoder.w", {2, 3}), Dtype::kF32, got);
  });
  EXPECT_NE(e.find("no tensor \"encoder.w\""), std::string::npos) << e;
}

TEST(LoadParameter, WrongShapeNamesBoth) {
  TemporaryFolder folder;
  const HfFolder hf = folder_with(folder, Dtype::kF32);
  float got[6];
  const std::string e = error_of<UserError>([&] {
    load_parameter(hf, spec("w", {3, 2}), Dtype::kF32, got);
  });
  EXPECT_NE(e.find("model.safetensors: tensor \"w\" has shape (2, 3)"), std::string::npos) << e;
  EXPECT_NE(e.find("requires (3, 2)"), std::string::npos) << e;
}

TEST(LoadParameter, IntegersAreRefused) {
  TemporaryFolder folder;
  const HfFolder hf = folder_with(folder, Dtype::kI32);
  float got[6];
  const std::string e = error_of<UserError>([&] {
    load_parameter(hf, spec("w", {2, 3}), Dtype::kF32, got);
  });
  EXPECT_NE(e.find("tensor \"w\" has dtype I32, wanted F32"), std::string::npos) << e;
}

TEST(StoredDtype, MatchesTheModelsTensors) {
  const HfFolder hf("tests/golden/data/tiny_llama/model");
  EXPECT_EQ(stored_dtype(hf, *make_model(hf.config(), {})), Dtype::kF32);
}

}  // namespace
}  // namespace weft
