// io/dcp_metadata.h: .metadata of torch.distributed.checkpoint: which file holds which part
// of which tensor.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tensor/dtype.h"
#include "tensor/shape.h"

namespace weft {

struct DcpChunk {
  Shape offset, extent;
  std::string file;  // a plain name
  size_t begin = 0, end = 0;
};

struct DcpTensor {
  std::vector<std::string> path;  // keys of the nested dict that was saved; one: its flat name
  Shape shape;
  std::optional<Dtype> dtype;
  std::string type;  // torch's name
  std::vector<DcpChunk> chunks;
};

// By flat name; what is no tensor is left out. `bytes` is the file, `what` its name in messages.
// UserError where a chunk is outside its tensor, has no place in a file, lies in a file of another
// folder, or was written through a transform.
std::map<std::string, DcpTensor> parse_dcp_metadata(std::string_view bytes, std::string_view what);

// A value that is no tensor: an archive of torch.save.
struct DcpValue {
  std::vector<std::string> path;  // a key of digits is a number: a place in a list
  std::string file;
  size_t begin = 0, end = 0;
};
// .metadata of these, by flat name; the tensors' dtype must be set, `type` is not used. Several may
// name the same bytes.
std::string pickle_dcp_metadata(const std::map<std::string, DcpTensor>& tensors,
                                const std::map<std::string, DcpValue>& values);

}  // namespace weft
