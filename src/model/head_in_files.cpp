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

bool ties_head(const Json& config, const FamilyTraits& traits) {
  return flag_or(config, kTied, traits.is_head_tied);
}

bool is_scaled(const Json& config, const FamilyTraits& traits) {
  return !traits.scale_key.empty() &&
         flag_or(config, traits.scale_key.c_str(), ties_head(config, traits));
}

// A family that scales its output keeps the scale that it had.
void set_tied(Json& config, const FamilyTraits& traits, bool is_tied) {
  if (!traits.scale_key.empty()) config.set(traits.scale_key, is_scaled(config, traits));
  config.set(kTied, is_tied);
}

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

std::string find_embedding(const HfFolder& folder, const FamilyTraits& traits) {
  for (const std::string& name : traits.embeddings) {
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

void check_copies(const HfFolder& folder, const FamilyTraits& traits,
                  const std::string& embedding) {
  for (const std::string& name : traits.embedding_copies) {
    require(!differs_from(folder, embedding, name),
            "{}: {} is not the same as {}; embeddings of one side are not built",
            folder.path().string(), name, embedding);
  }
}

}  // namespace

bool ties_head(const Json& config) { return ties_head(config, traits_of(config)); }

void untie_head(Json& config) { set_tied(config, traits_of(config), false); }

bool has_same_head(const Json& a, const Json& b) {
  return ties_head(a) == ties_head(b) && is_scaled(a, traits_of(a)) == is_scaled(b, traits_of(b));
}

Json config_in_force(const HfFolder& folder, const FamilyTraits& traits) {
  Json config = folder.config();
  const std::string embedding = folder.has_weights() ? find_embedding(folder, traits) : "";
  if (embedding.empty()) return config;
  if (!traits.is_unknown) check_copies(folder, traits, embedding);
  const bool differs = differs_from(folder, embedding, traits.head);
  const bool is_tied = ties_head(config, traits);
  if (is_tied ? !differs : differs || !traits.is_head_decided_by_files) return config;
  if (!is_tied && folder.find(traits.head).file == nullptr) {
    warn_once(folder, fmt::format("{}: false, but the files hold no {}; {} is used as the head, as "
                                  "transformers 5 does",
                                  kTied, traits.head, embedding));
  }
  if (is_tied && !traits.is_head_decided_by_files) {
    warn_once(folder, fmt::format("a tied head, but {} differs from {}; the head is used as it is, "
                                  "as transformers 5 does (set {}: false to silence this)",
                                  traits.head, embedding, kTied));
  }
  set_tied(config, traits, !is_tied);
  return config;
}

Json config_in_force(const HfFolder& folder) {
  return config_in_force(folder, traits_of(folder.config()));
}

}  // namespace weft
