// checkpoint/deepspeed_universal.cpp: one archive per tensor.
#include "checkpoint/deepspeed_universal.h"

#include "base/error.h"
#include "base/path.h"
#include "checkpoint/torch_pieces.h"

namespace weft {
namespace {

namespace fs = std::filesystem;

// A tensor, or a dict with it as "param".
LogicalTensor open_tensor(const fs::path& path, const std::string& name) {
  const auto archive = open_torch_archive(path);
  const PickleValue root = archive->root();
  TorchPiece piece = whole_piece(*archive, root.is_dict() ? root.at("param") : root, name);
  const Shape shape = piece.tensor.shape;
  return join_pieces(name, shape, {std::move(piece)});
}

void describe(const fs::path& folder, LogicalModel& out) {
  out.format = "DeepSpeed universal checkpoint";
  for (const std::string& name : folder_names(folder)) {
    if (!name.ends_with("_model_states.pt")) continue;
    const auto archive = open_torch_archive(folder / name);
    if (const auto step = archive->root().find("global_steps"); step && step->is_int())
      out.details.set("step", step->as_int());
    if (const auto version = archive->root().find("ds_version"); version && version->is_string())
      out.details.set("deepspeed", std::string(version->as_string()));
    return;
  }
}

}  // namespace

bool is_universal(const fs::path& step_folder) {
  return path_kind(step_folder / "zero") == PathKind::kFolder;
}

void read_universal(const fs::path& step_folder, LogicalModel& out) {
  describe(step_folder, out);
  const fs::path zero = step_folder / "zero";
  for (const std::string& name : folder_names(zero)) {
    const fs::path folder = zero / name;
    if (path_kind(folder) != PathKind::kFolder) continue;  // optimizer_state.pt
    if (path_kind(folder / "fp32.pt") != PathKind::kFile) {
      throw UserError(fmt::format("{} is missing", (folder / "fp32.pt").string()),
                      "copy the whole folder");
    }
    out.weights.push_back(open_tensor(folder / "fp32.pt", name));
    for (const auto& [file, suffix] :
         {std::pair("exp_avg.pt", "#m"), std::pair("exp_avg_sq.pt", "#v"),
          std::pair("momentum_buffer.pt", "#momentum")}) {
      if (path_kind(folder / file) != PathKind::kFile) continue;
      out.states.push_back(open_tensor(folder / file, name + suffix));
    }
  }
}

}  // namespace weft
