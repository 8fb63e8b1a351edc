// io/dcp_metadata_writer.cpp: a Metadata object as torch.distributed.checkpoint pickles it.
#include <algorithm>

#include "io/dcp_metadata.h"
#include "io/pickle_writer.h"
#include "io/torch_file.h"

namespace weft {
namespace {

constexpr const char* kMetadataModule = "torch.distributed.checkpoint.metadata";
constexpr const char* kFiles = "torch.distributed.checkpoint.filesystem";

class MetadataWriter {
 public:
  std::string write(const std::map<std::string, DcpTensor>& tensors,
                    const std::map<std::string, DcpValue>& values) {
    out_.object(kMetadataModule, "Metadata", [&] {
      out_.dict([&] {
        field("state_dict_metadata");
        out_.dict([&] {
          for (const auto& [name, t] : tensors) entry(name, t);
          for (const auto& [name, value] : values) {
            out_.text(name);
            out_.object(kMetadataModule, "BytesStorageMetadata", [&] { out_.dict([] {}); });
          }
        });
        field("planner_data");
        out_.dict([&] {
          for (const auto& [name, t] : tensors) path(name, t.path);
          for (const auto& [name, value] : values) path(name, value.path);
        });
        field("storage_data");
        out_.dict([&] {
          for (const auto& [name, t] : tensors) {
            for (size_t i = 0; i < t.chunks.size(); ++i) place(name, t.chunks[i], i);
          }
          for (const auto& [name, value] : values) {
            index(
                name, [&] { out_.none(); }, [&] { out_.none(); });
            storage(value.file, value.begin, value.end);
          }
        });
        field("storage_meta");
        out_.none();
        field("version");
        out_.text("1.0.0");
      });
    });
    return out_.finish();
  }

 private:
  void field(const char* name) { out_.text(name); }

  void entry(const std::string& name, const DcpTensor& t) {
    out_.text(name);
    out_.object(kMetadataModule, "TensorStorageMetadata", [&] {
      out_.dict([&] {
        field("properties");
        properties(t);
        field("size");
        out_.size(t.shape);
        field("chunks");
        out_.list([&] {
          for (const DcpChunk& c : t.chunks) chunk(c);
        });
      });
    });
  }

  void properties(const DcpTensor& t) {
    const std::string_view type = torch_dtype_name(*t.dtype);
    const size_t dot = type.rfind('.');
    out_.object(kMetadataModule, "TensorProperties", [&] {
      out_.tuple([&] {
        out_.global(type.substr(0, dot), type.substr(dot + 1));
        out_.call("torch.serialization", "_get_layout", [&] { out_.text("torch.strided"); });
        out_.boolean(false);  // requires_grad
        out_.call(kMetadataModule, "_MEM_FORMAT_ENCODING", [&] { out_.integer(0); });  // contiguous
        out_.boolean(false);                                                           // pin_memory
        out_.numbers(row_major_strides(t.shape));
      });
    });
  }

  void chunk(const DcpChunk& c) {
    out_.object(kMetadataModule, "ChunkStorageMetadata", [&] {
      out_.dict([&] {
        field("offsets");
        out_.size(c.offset);
        field("sizes");
        out_.size(c.extent);
      });
    });
  }

  void path(const std::string& name, const std::vector<std::string>& keys) {
    out_.text(name);
    out_.tuple([&] {
      for (const std::string& key : keys) {
        const bool is_number = !key.empty() && key.size() < 10 &&
                               key.find_first_not_of("0123456789") == std::string::npos;
        if (is_number) {
          out_.integer(std::stoll(key));
        } else {
          out_.text(key);
        }
      }
    });
  }

  void place(const std::string& name, const DcpChunk& c, size_t i) {
    index(
        name, [&] { out_.size(c.offset); }, [&] { out_.integer(static_cast<int64_t>(i)); });
    storage(c.file, c.begin, c.end);
  }

  void index(const std::string& name, const PickleWriter::Fill& offset,
             const PickleWriter::Fill& hint) {
    out_.object(kMetadataModule, "MetadataIndex", [&] {
      out_.dict([&] {
        field("fqn");
        out_.text(name);
        field("offset");
        offset();
        field("index");
        hint();
      });
    });
  }

  void storage(const std::string& file, size_t begin, size_t end) {
    out_.object(kFiles, "_StorageInfo", [&] {
      out_.dict([&] {
        field("relative_path");
        out_.text(file);
        field("offset");
        out_.integer(static_cast<int64_t>(begin));
        field("length");
        out_.integer(static_cast<int64_t>(end - begin));
        field("transform_descriptors");
        out_.none();
      });
    });
  }

  PickleWriter out_;
};

}  // namespace

std::string pickle_dcp_metadata(const std::map<std::string, DcpTensor>& tensors,
                                const std::map<std::string, DcpValue>& values) {
  return MetadataWriter().write(tensors, values);
}

}  // namespace weft
