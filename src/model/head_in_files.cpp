// model/head_in_files.cpp: compares the tensors of a folder with its embedding.
#include "model/head_in_files.h"

#include <algorithm>
#include <cstring>
#include <mutex>
#include <set>
#include <vector>

#include "base/error.h"
#include "base/log.h"
#include "model/config_fields.h"
#include "model/family.h"

namespace weft {
namespace {

constexpr const char* kTied = "tie_word_embeddings";
constexpr const char* kScaled = "scale_decoder_outputs";

bool is_t5(const Json& config) { return family_name(config) == "t5"; }

bool same_bytes(const HfFolder::Found& a, const HfFolder::Found& b) {
  constexpr int64_t kPiece = 1 << 20;  // elements
  if (a.info->shape != b.info->shape || a.info->dtype != b.info->dtype) return false;
  const int64_t n = num_elements(a.info->shape), width = dtype_bytes(a.info->dtype);
  std::vector<std::byte> x(static_cast<size_t>(std::min(n, kPiece) * width)), y(x.size());
  for (int64_t at = 0; at < n; at += kPiece) {
    const int64_t end = std::min(n, at + kPiece);
    a.file->read(*a.info, at, end, x.data());
    b.file->read(*b.info, at, end, y.data());
    if (std::memcmp(x.data(), y.data(), static_cast<size_t>((end - at) * width)) != 0) return false;
  }
  return true;
}

std::string find_embedding(const HfFolder& folder) {
  for (const char* name : kStoredEmbeddings) {
    if (folder.find(name).file != nullptr) return name;
  }
  return "";
}

// Whether the folder has the tensor, with other elements than the embedding's.
bool differs_from(const HfFolder& folder, const std::string& embedding, const std::string& name) {
  const HfFolder::Found tensor = folder.find(name);
  return tensor.file != nullptr && !same_bytes(tensor, folder.find(embedding));
}

// Once per folder: a run opens its model several times.
void warn_once(const HfFolder& folder, const std::string& what) {
  static std::mutex mutex;
  static std::set<std::string> warned;
  const std::string path = folder.path().string();
  const std::lock_guard lock(mutex);
  if (warned.insert(path).second) log_warning("{}: config.json has {}", path, what);
}

void check_t5_embeddings(const HfFolder& folder, const std::string& embedding) {
  for (const char* side : {"encoder", "decoder"}) {
    const std::string name = fmt::format("{}.embed_tokens.weight", side);
    require(!differs_from(folder, embedding, name),
            "{}: {} is not the same as {}; embeddings of one side are not built",
            folder.path().string(), name, embedding);
  }
}

void tie_t5_head(const HfFolder& folder, const std::string& embedding, Json& config) {
  if (folder.find(kStoredHead).file == nullptr) {
    warn_once(folder, fmt::format("{}: false, but the files hold no {}; {} is used as the head, as "
                                  "transformers 5 does",
                                  kTied, kStoredHead, embedding));
  }
  config.set(kScaled, flag_or(config, kScaled, false));
  config.set(kTied, true);
}

}  // namespace

bool ties_head(const Json& config) {
  const std::string family = family_name(config);
  const bool is_tied_by_default =
      !family.starts_with("llama") && !family.starts_with("qwen") && !family.starts_with("mistral");
  return flag_or(config, kTied, is_tied_by_default);
}

void untie_head(Json& config) {
  if (is_t5(config)) config.set(kScaled, flag_or(config, kScaled, ties_head(config)));
  config.set(kTied, false);
}

bool has_same_head(const Json& a, const Json& b) {
  const auto is_scaled = [](const Json& config) {
    return is_t5(config) && flag_or(config, kScaled, ties_head(config));
  };
  return ties_head(a) == ties_head(b) && is_scaled(a) == is_scaled(b);
}

Json config_in_force(const HfFolder& folder) {
  Json config = folder.config();
  const std::string embedding = folder.has_weights() ? find_embedding(folder) : "";
  if (embedding.empty()) return config;
  if (is_t5(config)) check_t5_embeddings(folder, embedding);
  if (!ties_head(config)) {
    if (is_t5(config) && !differs_from(folder, embedding, kStoredHead))
      tie_t5_head(folder, embedding, config);
    return config;
  }
  if (!differs_from(folder, embedding, kStoredHead)) return config;
  if (!is_t5(config)) {
    warn_once(folder, fmt::format("a tied head, but {} differs from {}; the head is used as it is, "
                                  "as transformers 5 does (set {}: false to silence this)",
                                  kStoredHead, embedding, kTied));
  }
  untie_head(config);
  return config;
}

}  // namespace weft
