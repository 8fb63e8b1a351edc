// model/head_in_files.cpp: compares the tensors of a T5 folder with its embedding.
#include "model/head_in_files.h"

#include <cstring>
#include <mutex>
#include <set>

#include "base/error.h"
#include "base/log.h"
#include "model/config_fields.h"

namespace weft {
namespace {

constexpr const char* kTied = "tie_word_embeddings";
constexpr const char* kHead = "lm_head.weight";
constexpr const char* kScaled = "scale_decoder_outputs";

bool is_t5(const Json& config) {
  const Json* type = config.find("model_type");
  return type != nullptr && type->is_string() && type->as_string() == "t5";
}

// Whether the folder has the tensor, with other elements than the embedding's.
bool differs_from_embedding(const HfFolder& folder, const std::string& name) {
  const auto [file, tensor] = folder.find(name);
  const auto [shared_file, shared] = folder.find("shared.weight");
  if (file == nullptr || shared_file == nullptr) return false;
  if (tensor->shape != shared->shape || tensor->dtype != shared->dtype) return true;
  const int64_t bytes = num_elements(shared->shape) * dtype_bytes(shared->dtype);
  return std::memcmp(file->data(*tensor), shared_file->data(*shared), static_cast<size_t>(bytes)) !=
         0;
}

// Once per folder: a run opens its model several times.
void warn_of_missing_head(const HfFolder& folder) {
  static std::mutex mutex;
  static std::set<std::string> warned;
  const std::string path = folder.path().string();
  const std::lock_guard lock(mutex);
  if (!warned.insert(path).second) return;
  log_warning(
      "{}: config.json has {}: false, but the files hold no {}; shared.weight is used as the head, "
      "as transformers 5 does",
      path, kTied, kHead);
}

}  // namespace

Json config_in_force(const HfFolder& folder) {
  Json config = folder.config();
  if (!is_t5(config) || !folder.has_weights()) return config;
  for (const char* side : {"encoder", "decoder"}) {
    const std::string name = fmt::format("{}.embed_tokens.weight", side);
    require(!differs_from_embedding(folder, name),
            "{}: {} is not the same as shared.weight; embeddings of one side are not built",
            folder.path().string(), name);
  }
  const bool is_tied = !differs_from_embedding(folder, kHead);
  const bool was_tied = flag_or(config, kTied, true);
  if (is_tied == was_tied) return config;
  if (is_tied && folder.find(kHead).file == nullptr) warn_of_missing_head(folder);
  config.set(kScaled, flag_or(config, kScaled, was_tied));
  config.set(kTied, is_tied);
  return config;
}

}  // namespace weft
