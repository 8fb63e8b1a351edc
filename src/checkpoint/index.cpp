// checkpoint/index.cpp: reads and writes the index as JSON, and checks that it covers every
// element.
#include "checkpoint/index.h"

#include <algorithm>
#include <charconv>

#include "base/error.h"
#include "base/hash.h"
#include "checkpoint/overlap.h"
#include "io/safetensors.h"

namespace weft {
namespace {

constexpr const char* kFormat = "weft checkpoint 1";
constexpr const char* kBlockBytes = "block_bytes";

Json::Array to_array(const Shape& shape) { return Json::Array(shape.begin(), shape.end()); }

Json slice_to_json(const StoredSlice& s) {
  Json::Object box;
  box.emplace_back("offset", to_array(s.region.offset));
  box.emplace_back("extent", to_array(s.region.extent));
  Json::Object entry;
  entry.emplace_back("file", s.file);
  entry.emplace_back("offsets", Json::Array{uint64_t{s.begin}, uint64_t{s.end}});
  entry.emplace_back("box", std::move(box));
  entry.emplace_back("flat", Json::Array{s.region.flat_begin, s.region.flat_end});
  entry.emplace_back("checksum", hash_hex(s.checksum));
  if (s.blocks.empty()) return entry;
  std::string blocks;
  for (const uint64_t block : s.blocks) blocks += hash_hex(block);
  entry.emplace_back("blocks", std::move(blocks));
  return entry;
}

// Reads one tensor's entry; Json's typed accessors do not know the key, so every caller goes
// through read_tensor, which adds file and tensor to the error.
Shape read_sizes(const Json& entry, const char* key) {
  Shape sizes;
  for (const Json& v : entry.at(key).as_array()) {
    require(v.is_int() && v.as_int() >= 0, "{} holds {}, wanted whole numbers", key, v.dump());
    sizes.push_back(v.as_int());
  }
  return sizes;
}

uint64_t read_checksum(std::string_view text) {
  uint64_t value = 0;
  const auto [end, fault] = std::from_chars(text.data(), text.data() + text.size(), value, 16);
  require(text.size() == 16 && fault == std::errc() && end == text.data() + text.size(),
          "checksum \"{}\", wanted 16 hexadecimal digits", text);
  return value;
}

std::vector<uint64_t> read_blocks(std::string_view digits, size_t bytes) {
  const size_t wanted = (bytes + kCheckedBlock - 1) / kCheckedBlock;
  require(digits.size() / 16 == wanted && digits.size() % 16 == 0,
          "{} digits of checksums for {} blocks", digits.size(), wanted);
  std::vector<uint64_t> blocks;
  for (size_t at = 0; at < digits.size(); at += 16)
    blocks.push_back(read_checksum(digits.substr(at, 16)));
  return blocks;
}

StoredSlice read_slice(const Json& entry, const StoredTensor& tensor, bool has_blocks) {
  StoredSlice s;
  s.file = entry.at("file").as_string();
  require(is_own_file(s.file) && s.file.ends_with(".safetensors"),
          "file \"{}\", wanted rank-NNNNN.safetensors", s.file);
  const Shape offsets = read_sizes(entry, "offsets");
  const Shape flat = read_sizes(entry, "flat");
  require(offsets.size() == 2 && flat.size() == 2, "offsets and flat need a begin and an end");
  s.begin = static_cast<size_t>(offsets[0]);
  s.end = static_cast<size_t>(offsets[1]);
  s.region = {read_sizes(entry.at("box"), "offset"), read_sizes(entry.at("box"), "extent"), flat[0],
              flat[1]};
  const std::string fault = region_fault(s.region, tensor.shape);
  require(fault.empty(), "{}", fault);
  require(s.begin <= s.end && s.end - s.begin == static_cast<size_t>(s.region.size()) *
                                                     static_cast<size_t>(dtype_bytes(tensor.dtype)),
          "bytes {} to {} for {} elements", s.begin, s.end, s.region.size());
  s.checksum = read_checksum(entry.at("checksum").as_string());
  if (const Json* blocks = entry.find("blocks"); blocks && has_blocks)
    s.blocks = read_blocks(blocks->as_string(), s.end - s.begin);
  return s;
}

StoredTensor read_tensor(const Json& entry, bool has_blocks) {
  StoredTensor tensor;
  tensor.shape = read_sizes(entry, "shape");
  const std::string& name = entry.at("dtype").as_string();
  const auto dtype = find_safetensors_dtype(name);
  require(dtype.has_value(), "unknown dtype {}", name);
  tensor.dtype = *dtype;
  require(checked_bytes(tensor.shape, *dtype).has_value(), "shape {} overflows a 64-bit count",
          to_string(tensor.shape));
  for (const Json& s : entry.at("slices").as_array()) {
    tensor.slices.push_back(read_slice(s, tensor, has_blocks));
  }
  return tensor;
}

Json headers_to_json(const StoredHeaders& headers) {
  Json::Object entries;
  for (const auto& [file, header] : headers) {
    Json::Object entry;
    entry.emplace_back("bytes", uint64_t{header.bytes});
    entry.emplace_back("checksum", hash_hex(header.checksum));
    entries.emplace_back(file, std::move(entry));
  }
  return entries;
}

bool have_blocks(const StoredTensors& tensors) {
  return std::any_of(tensors.begin(), tensors.end(), [](const auto& named) {
    const std::vector<StoredSlice>& slices = named.second.slices;
    return std::any_of(slices.begin(), slices.end(),
                       [](const StoredSlice& s) { return !s.blocks.empty(); });
  });
}

}  // namespace

Json index_to_json(const StoredTensors& tensors, const StoredHeaders& headers, int num_ranks) {
  Json::Object entries;
  for (const auto& [name, tensor] : tensors) {
    Json::Array slices;
    for (const StoredSlice& s : tensor.slices) slices.push_back(slice_to_json(s));
    Json::Object entry;
    entry.emplace_back("shape", to_array(tensor.shape));
    entry.emplace_back("dtype", safetensors_name(tensor.dtype));
    entry.emplace_back("slices", std::move(slices));
    entries.emplace_back(name, std::move(entry));
  }
  Json index;
  index.set("format", kFormat);
  index.set("num_ranks", num_ranks);
  if (have_blocks(tensors)) index.set(kBlockBytes, uint64_t{kCheckedBlock});
  if (!headers.empty()) index.set("headers", headers_to_json(headers));
  index.set("tensors", std::move(entries));
  return index;
}

void check_index_format(const Json& index, std::string_view what) {
  const Json* format = index.find("format");
  if (format && *format == Json(kFormat)) return;
  const bool is_ours =
      format && format->is_string() && format->as_string().starts_with("weft checkpoint ");
  throw UserError(fmt::format("{}: format {}, wanted \"{}\"", what,
                              format ? format->dump() : "missing", kFormat),
                  is_ours ? "a newer weft wrote it: use that one, or export its model there (weft "
                            "export) and read the folder here"
                          : "the folder is not a weft checkpoint");
}

StoredTensors index_from_json(const Json& index, std::string_view what) {
  check_index_format(index, what);
  const Json* list = index.find("tensors");
  require(list && list->is_object(), "{}: no object tensors", what);
  // Blocks of another size are not used: slices are then checked as a whole.
  const Json* block_bytes = index.find(kBlockBytes);
  const bool has_blocks = block_bytes && *block_bytes == Json(uint64_t{kCheckedBlock});
  StoredTensors tensors;
  for (const auto& [name, entry] : list->as_object()) {
    try {
      require(tensors.emplace(name, read_tensor(entry, has_blocks)).second, "is listed twice");
    } catch (const UserError& e) {
      throw UserError(fmt::format("{}: tensor \"{}\": {}", what, name, e.what()), e.hint());
    }
  }
  return tensors;
}

StoredHeaders headers_from_json(const Json& index, std::string_view what) {
  StoredHeaders headers;
  const Json* list = index.find("headers");
  if (!list) return headers;
  require(list->is_object(), "{}: headers is not an object", what);
  for (const auto& [file, entry] : list->as_object()) {
    try {
      require(is_own_file(file) && file.ends_with(".safetensors"), "wanted rank-NNNNN.safetensors");
      const Json& bytes = entry.at("bytes");
      require(bytes.is_int() && bytes.as_int() >= 0, "bytes is {}", bytes.dump());
      headers[file] = {static_cast<size_t>(bytes.as_int()),
                       read_checksum(entry.at("checksum").as_string())};
    } catch (const UserError& e) {
      throw UserError(fmt::format("{}: header of \"{}\": {}", what, file, e.what()), e.hint());
    }
  }
  return headers;
}

void merge_tensors(StoredTensors& all, StoredTensors part) {
  for (auto& [name, tensor] : part) {
    const auto [found, fresh] = all.try_emplace(name, tensor);
    if (fresh) continue;
    StoredTensor& have = found->second;
    ensure(have.shape == tensor.shape && have.dtype == tensor.dtype,
           fmt::format("ranks disagree about tensor \"{}\": {} {} and {} {}", name,
                       to_string(have.shape), dtype_name(have.dtype), to_string(tensor.shape),
                       dtype_name(tensor.dtype)));
    have.slices.insert(have.slices.end(), tensor.slices.begin(), tensor.slices.end());
  }
}

std::string coverage_fault(const StoredTensors& tensors) {
  for (const auto& [name, t] : tensors) {
    int64_t held = 0;
    std::vector<const Region*> regions;
    for (const StoredSlice& slice : t.slices) {
      // Overflow needs more slices of a full tensor than an index may hold; the clamp guards
      // against forged ones.
      if (__builtin_add_overflow(held, slice.region.size(), &held)) held = INT64_MAX;
      regions.push_back(&slice.region);
    }
    if (const auto pair = find_overlap(regions, t.shape)) {
      return fmt::format("tensor \"{}\": slices in {} and {} hold the same elements", name,
                         t.slices[pair->first].file, t.slices[pair->second].file);
    }
    if (held != num_elements(t.shape)) {
      return fmt::format("tensor \"{}\": the slices hold {} of {} elements", name, held,
                         num_elements(t.shape));
    }
  }
  return "";
}

std::string rank_file(int rank) { return fmt::format("rank-{:05}.safetensors", rank); }
std::string part_file(int rank) { return fmt::format("index-rank-{:05}.json", rank); }

bool is_own_file(std::string_view name) {
  const bool rank = name.starts_with("rank-") && name.ends_with(".safetensors");
  const bool part = name.starts_with("index-rank-") && name.ends_with(".json");
  const bool plain = name.find('/') == std::string_view::npos;
  return plain &&
         (rank || part || name == kIndexFile || name == kStateFile || name == kCommittedFile);
}

std::filesystem::path writing_folder(const std::filesystem::path& folder) {
  return folder.string() + ".writing";
}

}  // namespace weft
