// train/final_model.cpp: parameters, configuration and tokenizer put together by checkpoint/export.
#include "train/final_model.h"

#include "checkpoint/export.h"

namespace weft {

std::map<std::string, std::string> side_files(const Session& session) {
  std::map<std::string, std::string> files = session.folder.side_files();
  for (auto& [name, bytes] : session.tokenizer->files()) files[name] = bytes;
  files["config.json"] = trained_config(session.folder.config(), session.config).dump(2) + "\n";
  return files;
}

void write_final_model(const std::filesystem::path& out, const std::vector<Slice>& weights,
                       const Session& session) {
  std::vector<LogicalTensor> tensors;
  for (const Slice& s : weights)
    tensors.push_back(tensor_in_memory(s.name, s.shape, s.dtype, s.data));
  ExportOptions options;
  options.dtype = session.final_dtype;
  options.overwrite = true;  // a run that went on replaces its own final/
  std::map<std::string, std::string> files = side_files(session);
  files.erase("config.json");
  export_hf(tensors, trained_config(session.folder.config(), session.config), files, out, options);
}

}  // namespace weft
