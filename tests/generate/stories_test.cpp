// tests/generate/stories_test.cpp: a trained model generates the published story.
#include <gtest/gtest.h>

#include <filesystem>

#include "base/file.h"
#include "generate/generator.h"
#include "model/load.h"
#include "tests/shared_data.h"

namespace weft {
namespace {

TEST(Stories, GreedyContinuationIsThePublishedOne) {
  const std::filesystem::path path = shared_data() / "weights/stories260K_hf";
  if (!std::filesystem::exists(path)) GTEST_SKIP() << path << " does not exist";
  const HfFolder folder(path);
  folder.open_weights();
  const auto model = make_model(folder.config(), {});
  std::vector<int32_t> wanted;
  const Json golden = parse_json(read_file(path / "golden.json"), "golden.json");
  for (const Json& id : golden.at("greedy_ids_200").as_array()) {
    wanted.push_back(static_cast<int32_t>(id.as_int()));
  }
  ThreadPool pool(2);
  const auto load = [&](const ParameterSpec& spec, Dtype dtype, void* data) {
    load_parameter(folder, spec, dtype, data);
  };
  for (const Kernels* kernels : {&ref_kernels(), &cpu_kernels()}) {
    Generator generator(*model, {1, 256, Dtype::kF32}, *kernels, &pool, load);
    SampleOptions options;
    options.max_new_tokens = 200;
    EXPECT_EQ(generator.generate({{1}}, options)[0], wanted) << kernels->name;
  }
}

}  // namespace
}  // namespace weft
