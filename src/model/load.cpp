// model/load.cpp: checks on a file before its bytes are used.
#include "model/load.h"

#include <algorithm>
#include <set>

#include "base/error.h"
#include "base/log.h"
#include "graph/portion.h"
#include "model/family.h"
#include "model/stored.h"

namespace weft {
namespace {

bool is_floating(Dtype dtype) {
  return dtype == Dtype::kF32 || dtype == Dtype::kBf16 || dtype == Dtype::kF16 ||
         dtype == Dtype::kF64;
}

[[noreturn]] void throw_missing(const HfFolder& folder, const StoredAs& stored) {
  const std::string message =
      fmt::format("{} has no tensor \"{}\" {}, which its config.json requires",
                  folder.path().string(), stored.name, to_string(stored.shape));
  if (stored.name == traits_of(folder.config()).head) {
    throw UserError(message, "set tie_word_embeddings to true if the head is the embedding");
  }
  throw UserError(message, "`weft inspect` on the folder lists its tensors");
}

HfFolder::Found find_floating(const HfFolder& folder, const StoredAs& stored) {
  const HfFolder::Found found = find_stored(folder, stored.name);
  if (found.file == nullptr) throw_missing(folder, stored);
  require(is_floating(found.info->dtype),
          "{}: tensor \"{}\" has dtype {}, wanted F32, BF16, F16 or F64",
          found.file->path().string(), stored.name, safetensors_name(found.info->dtype));
  return found;
}

// Written by older programs, or next to a tied embedding (model/head_in_files.h).
bool is_no_parameter(const std::string& name, const FamilyTraits& traits) {
  const auto ends = [&](const std::string& end) { return name.ends_with(end); };
  const auto& copies = traits.embedding_copies;
  return name == traits.head || std::find(copies.begin(), copies.end(), name) != copies.end() ||
         std::any_of(traits.stray_ends.begin(), traits.stray_ends.end(), ends);
}

// A bias that was trained with a weight of the model must not be dropped: the outputs would differ.
void refuse_undeclared_bias(const std::string& name, const std::set<std::string>& known,
                            const FamilyTraits& traits, const std::filesystem::path& path) {
  constexpr std::string_view kBias = ".bias";
  if (!name.ends_with(kBias)) return;
  const std::string weight = name.substr(0, name.size() - kBias.size()) + ".weight";
  if (!known.contains(weight) && weight != traits.head) return;
  throw UserError(
      fmt::format("{} has a tensor \"{}\", but config.json defines \"{}\" without a bias",
                  path.string(), name, weight),
      "set attention_bias or mlp_bias to true in config.json, or remove the tensors if they are "
      "not part of the model");
}

}  // namespace

std::string without_base_prefix(const std::string& name) {
  for (const Family& family : known_families()) {
    const std::string& prefix = family.traits().base_prefix;
    if (!prefix.empty() && name.starts_with(prefix)) return name.substr(prefix.size());
  }
  return name;
}

HfFolder::Found find_stored(const HfFolder& folder, const std::string& name) {
  const HfFolder::Found found = folder.find(name);
  return found.file != nullptr ? found : folder.find(without_base_prefix(name));
}

void warn_of_unknown_tensors(const std::vector<std::string>& names, const Json& config,
                             const std::filesystem::path& path) {
  constexpr size_t kMostShown = 3;
  std::set<std::string> known;
  const auto model = make_model(config, {0, 0.0});  // all layers, whatever the run file uses
  for (const ParameterSpec& p : model->parameters()) {
    known.insert(stored_as(p).name);
    known.insert(without_base_prefix(stored_as(p).name));
  }
  const FamilyTraits& traits = traits_of(config);
  std::vector<std::string> unknown;
  for (const std::string& name : names) {
    if (!known.contains(name) && !is_no_parameter(name, traits)) unknown.push_back(name);
  }
  if (unknown.empty()) return;
  for (const std::string& name : unknown) refuse_undeclared_bias(name, known, traits, path);
  std::string list;
  for (size_t i = 0; i < std::min(unknown.size(), kMostShown); ++i)
    list += (i == 0 ? "" : ", ") + unknown[i];
  if (unknown.size() > kMostShown) list += fmt::format(" and {} more", unknown.size() - kMostShown);
  log_warning("{} has {} that config.json does not define, and that nothing uses: {}",
              path.string(),
              unknown.size() == 1 ? "a tensor" : fmt::format("{} tensors", unknown.size()), list);
}

ParameterSource find_parameter(const HfFolder& folder, const ParameterSpec& spec) {
  const StoredAs stored = stored_as(spec);
  const auto [file, info] = find_floating(folder, stored);
  require(info->shape == stored.shape,
          "{}: tensor \"{}\" has shape {}, but config.json requires {}", file->path().string(),
          stored.name, to_string(info->shape), to_string(stored.shape));
  return {file, info, file->is_mapped() ? file->data(*info) : nullptr};
}

void ParameterSource::read(int64_t begin, int64_t count, Dtype to, void* out) const {
  const int64_t width = dtype_bytes(info->dtype);
  if (data) return convert_elements(data + begin * width, info->dtype, out, to, count);
  constexpr int64_t kPiece = 1 << 18;  // elements: large reads release their pages
  std::vector<std::byte> stored(static_cast<size_t>(std::min(count, kPiece) * width));
  for (int64_t at = 0; at < count; at += kPiece) {
    const int64_t n = std::min(kPiece, count - at);
    file->read(*info, begin + at, begin + at + n, stored.data());
    convert_elements(stored.data(), info->dtype,
                     static_cast<std::byte*>(out) + at * dtype_bytes(to), to, n);
  }
}

void load_parameter(const HfFolder& folder, const ParameterSpec& spec, Dtype to, void* data) {
  ensure(is_floating(to), "parameters must be floating");
  const ParameterSource source = find_parameter(folder, spec);
  for_each_run(whole_as_stored(spec), [&](int64_t from, int64_t count, int64_t at) {
    source.read(from, count, to, static_cast<std::byte*>(data) + at * dtype_bytes(to));
  });
}

Dtype stored_dtype(const HfFolder& folder, const Model& model) {
  return find_floating(folder, stored_as(model.parameters().front())).info->dtype;
}

}  // namespace weft
