// io/dcp_metadata.cpp: a pickled Metadata object, as plain values.
#include "io/dcp_metadata.h"

#include <tuple>

#include "base/error.h"
#include "base/printable.h"
#include "io/torch_file.h"

namespace weft {
namespace {

constexpr std::string_view kMetadataPrefix = "torch.distributed.checkpoint.metadata.";

struct ChunkPlace {
  std::string file;
  size_t begin, end;
};
using Places = std::map<std::pair<std::string, Shape>, ChunkPlace>;  // of (flat name, offset)

// No number is negative (shape_of).
bool is_within(const DcpChunk& c, const Shape& shape) {
  if (c.offset.size() != shape.size() || c.extent.size() != shape.size()) return false;
  for (size_t i = 0; i < shape.size(); ++i) {
    if (c.offset[i] > shape[i] || c.extent[i] > shape[i] - c.offset[i]) return false;
  }
  return true;
}

class MetadataReader {
 public:
  MetadataReader(std::string_view bytes, std::string_view what)
      : what_(printable_line(what)), pickle_(bytes, what) {}

  std::map<std::string, DcpTensor> read() const {
    const PickleValue root = pickle_.root();
    require(root.class_name() == std::string(kMetadataPrefix) + "Metadata",
            "{}: holds {} {}, wanted the metadata of torch.distributed.checkpoint", what_,
            root.kind_name(), printable_line(root.class_name()));
    const PickleValue fields = state_of(root);
    const PickleValue entries = fields.at("state_dict_metadata");
    const Places places = read_places(fields.at("storage_data"));
    const auto paths = read_paths(fields.find("planner_data"));
    std::map<std::string, DcpTensor> out;
    for (size_t i = 0; i < entries.num_entries(); ++i) {
      if (!entries.value(i).is_object(std::string(kMetadataPrefix) + "TensorStorageMetadata"))
        continue;
      const std::string name(entries.key(i).as_string());
      DcpTensor tensor = read_tensor(name, entries.value(i), places);
      const auto path = paths.find(name);
      tensor.path = path == paths.end() ? std::vector{name} : path->second;
      out[name] = std::move(tensor);
    }
    return out;
  }

 private:
  PickleValue state_of(const PickleValue& object) const {
    const auto state = object.state();
    require(state.has_value(), "{}: {} {} has no fields", what_, object.kind_name(),
            printable_line(object.class_name()));
    return *state;
  }

  // The keys that lead to a tensor in the dict that was saved.
  std::map<std::string, std::vector<std::string>> read_paths(
      const std::optional<PickleValue>& planner) const {
    std::map<std::string, std::vector<std::string>> out;
    if (!planner || !planner->is_dict()) return out;
    for (size_t i = 0; i < planner->num_entries(); ++i) {
      const PickleValue list = planner->value(i);
      if (!planner->key(i).is_string() || !list.is_list()) continue;
      std::vector<std::string> path;
      for (size_t k = 0; k < list.size(); ++k)
        path.push_back(list[k].is_string() ? std::string(list[k].as_string())
                                           : std::to_string(list[k].as_int()));
      if (!path.empty()) out[std::string(planner->key(i).as_string())] = std::move(path);
    }
    return out;
  }

  Places read_places(const PickleValue& storage) const {
    Places out;
    for (size_t i = 0; i < storage.num_entries(); ++i) {
      const PickleValue index = state_of(storage.key(i)), info = state_of(storage.value(i));
      const auto offset = index.find("offset");
      if (!offset || offset->is_null()) continue;  // no tensor
      const std::string name(index.at("fqn").as_string());
      const auto transforms = info.find("transform_descriptors");
      require(!transforms || transforms->is_null() || transforms->size() == 0,
              "{}: \"{}\" was written through a transform (compression), which is not read", what_,
              printable_line(name));
      out.insert_or_assign(std::pair(name, shape_of(*offset)), read_place(info));
    }
    return out;
  }

  // The file's name is untrusted: it must not lead out of the folder.
  ChunkPlace read_place(const PickleValue& info) const {
    const std::string file(info.at("relative_path").as_string());
    require(!file.empty() && file != "." && file != ".." && file.find('/') == std::string::npos &&
                file.find('\0') == std::string::npos,
            "{}: a tensor is in \"{}\", wanted a file in this folder", what_, printable_line(file));
    const int64_t begin = info.at("offset").as_int(), bytes = info.at("length").as_int();
    int64_t end = 0;
    require(begin >= 0 && bytes >= 0 && !__builtin_add_overflow(begin, bytes, &end),
            "{}: {} bytes at {} of {}", what_, bytes, begin, printable_line(file));
    return {file, static_cast<size_t>(begin), static_cast<size_t>(end)};
  }

  DcpTensor read_tensor(const std::string& name, const PickleValue& value,
                        const Places& places) const {
    const PickleValue fields = state_of(value);
    DcpTensor tensor;
    tensor.shape = shape_of(fields.at("size"));
    tensor.type = state_of(fields.at("properties"))[0].class_name();
    tensor.dtype = find_torch_dtype(tensor.type);
    require(checked_bytes(tensor.shape, Dtype::kF64).has_value(), "{}: \"{}\" has shape {}", what_,
            printable_line(name), to_string(tensor.shape));
    const PickleValue chunks = fields.at("chunks");
    for (size_t i = 0; i < chunks.size(); ++i) {
      const PickleValue chunk = state_of(chunks[i]);
      DcpChunk c{shape_of(chunk.at("offsets")), shape_of(chunk.at("sizes")), "", 0, 0};
      require(checked_bytes(c.extent, Dtype::kF64).has_value(), "{}: \"{}\" has a part of {}",
              what_, printable_line(name), to_string(c.extent));
      require(is_within(c, tensor.shape), "{}: \"{}\" of {} has a part of {} at {}", what_,
              printable_line(name), to_string(tensor.shape), to_string(c.extent),
              to_string(c.offset));
      const auto place = places.find({name, c.offset});
      require(place != places.end(), "{}: the part at {} of \"{}\" is in no file", what_,
              to_string(c.offset), printable_line(name));
      std::tie(c.file, c.begin, c.end) =
          std::tie(place->second.file, place->second.begin, place->second.end);
      tensor.chunks.push_back(std::move(c));
    }
    return tensor;
  }

  std::string what_;
  Pickle pickle_;
};

}  // namespace

std::map<std::string, DcpTensor> parse_dcp_metadata(std::string_view bytes, std::string_view what) {
  return MetadataReader(bytes, what).read();
}

}  // namespace weft
