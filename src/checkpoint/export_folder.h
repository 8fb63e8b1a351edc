// checkpoint/export_folder.h: a folder of exported tensors appears when it is complete.
#pragma once

#include <filesystem>
#include <functional>
#include <vector>

#include "base/json.h"
#include "checkpoint/export.h"
#include "checkpoint/logical.h"

namespace weft {

// write(folder) fills out.writing, which is then synced and renamed to `out`; nothing is left where
// that fails. `is_ours` says whether an existing folder is an export that --overwrite may replace.
// UserError where `out` holds anything else.
void write_export(const std::filesystem::path& out, const ExportOptions& options,
                  bool (*is_ours)(const std::filesystem::path& folder),
                  const std::function<void(const std::filesystem::path& folder)>& write);

// config.json with the dtype of most elements, and the side files; all synced.
void write_config_files(const std::filesystem::path& folder,
                        const std::vector<LogicalTensor>& weights, const Json& config,
                        const std::map<std::string, std::string>& side_files,
                        const ExportOptions& options);

bool is_floating(Dtype dtype);
// The dtype in which an export has the tensor.
Dtype exported_dtype(const LogicalTensor& tensor, const ExportOptions& options);

// Elements [begin, end) in dtype `to`, a piece at a time.
using WriteBytes = std::function<void(const void* bytes, size_t size)>;
void stream_elements(const LogicalTensor& tensor, Dtype to, int64_t begin, int64_t end,
                     const WriteBytes& write);

}  // namespace weft
