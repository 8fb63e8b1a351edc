// checkpoint/export_deepspeed.cpp: DeepSpeed's universal checkpoint: a folder per parameter, a file
// per state.
//
// Its loader restores parameters and states from zero/NAME/*.pt, the groups from
// zero/optimizer_state.pt (each ZeRO stage from its own key), and only counters from the files of
// model states, of which ZeRO 3 has another name.
#include "base/error.h"
#include "base/path.h"
#include "checkpoint/export_folder.h"
#include "checkpoint/export_torch.h"
#include "checkpoint/replace_folder.h"
#include "checkpoint/torch_groups.h"
#include "io/torch_writer.h"

namespace weft {
namespace {

namespace fs = std::filesystem;

constexpr const char* kDeepSpeedVersion = "0.19.0";  // whose loader this was written for

void write_tensor(const fs::path& path, const LogicalTensor& t) {
  PickleWriter pickle;
  pickle.dict([&] {
    pickle.text("param");
    pickle_tensor(pickle, 0, Dtype::kF32, t.shape);
  });
  const int64_t n = num_elements(t.shape);
  FileWriter file(path, FileWriter::Mode::kTruncate);
  TorchWriter out(&file, pickle.finish(), {static_cast<uint64_t>(n) * sizeof(float)});
  stream_elements(t, Dtype::kF32, 0, n,
                  [&](const void* bytes, size_t size) { out.write(bytes, size); });
  out.finish();
  file.sync();
}

// A value whose tensors are all the step: storage 0.
void write_value(const fs::path& path, const PickleWriter& pickle, float step) {
  FileWriter file(path, FileWriter::Mode::kTruncate);
  TorchWriter out(&file, pickle.finish(), {sizeof(step)});
  out.write(&step, sizeof(step));
  out.finish();
  file.sync();
}

void write_parameter(const fs::path& zero, const LogicalModel& model, const LogicalTensor& weight,
                     const std::optional<TorchOptimizer>& optimizer) {
  const bool is_plain = !weight.name.empty() && weight.name[0] != '.' &&
                        weight.name.find_first_of(std::string("/\0", 2)) == std::string::npos;
  require(is_plain, "tensor \"{}\" cannot be the name of a folder, as DeepSpeed needs it",
          weight.name);
  const fs::path folder = zero / weight.name;
  make_folder(folder);
  write_tensor(folder / "fp32.pt", weight);
  if (optimizer) {
    const auto states = states_of(model, weight.name);
    for (const auto& [key, t] : states) write_tensor(folder / (key + ".pt"), *t);
    if (has_moments(*optimizer) && !states.empty()) {
      PickleWriter step;
      pickle_tensor(step, 0, Dtype::kF32, {});
      write_value(folder / "step.pt", step, static_cast<float>(optimizer->step));
    }
  }
  sync_directory(folder);
}

void pickle_groups(PickleWriter& out, const LogicalModel& model,
                   const std::optional<TorchOptimizer>& optimizer) {
  out.text("param_groups");
  out.list([&] {
    for (const ParamGroup& group : param_groups(model, optimizer.value_or(TorchOptimizer{}))) {
      out.dict([&] {
        out.text("params");
        out.list([] {});
        if (!optimizer) return;  // the loader's own hyperparameters stay
        for (const auto& [key, append] : hyperparameters(*optimizer, group)) {
          out.text(key);
          append(out);
        }
      });
    }
  });
}

void write_optimizer_state(const fs::path& zero, const LogicalModel& model,
                           const std::optional<TorchOptimizer>& optimizer) {
  PickleWriter out;
  out.dict([&] {
    out.text("ds_version");
    out.text(kDeepSpeedVersion);
    pickle_groups(out, model, optimizer);  // read by ZeRO 1 and 2
    out.text("optimizer_state_dict");      // read by ZeRO 3
    out.dict([&] {
      out.text("state");
      out.dict([&] {
        out.integer(0);
        out.dict([&] {
          out.text("step");
          pickle_tensor(out, 0, Dtype::kF32, {});
        });
      });
      pickle_groups(out, model, optimizer);
    });
  });
  const float step = optimizer ? static_cast<float>(optimizer->step) : 0;
  write_value(zero / "optimizer_state.pt", out, step);
}

void write_model_states(const fs::path& folder, int64_t step) {
  PickleWriter out;
  const auto number = [&](const char* key, int64_t value) {
    out.text(key);
    out.integer(value);
  };
  out.dict([&] {
    out.text("ds_version");
    out.text(kDeepSpeedVersion);
    out.text("module");
    out.dict([] {});
    number("global_steps", step);
    number("skipped_steps", 0);
    number("dp_world_size", 1);
    number("mp_world_size", 1);
    out.text("lr_scheduler");  // DeepSpeed's counter, and those of torch's schedulers
    out.dict([&] {
      number("last_batch_iteration", step - 1);
      number("last_epoch", step);
      number("_step_count", step + 1);
    });
  });
  for (const char* name :
       {"mp_rank_00_model_states.pt", "zero_pp_rank_0_mp_rank_00_model_states.pt"}) {
    FileWriter file(folder / name, FileWriter::Mode::kTruncate);
    TorchWriter(&file, out.finish(), {}).finish();
    file.sync();
  }
}

}  // namespace

bool is_deepspeed_export(const fs::path& folder) {
  return path_kind(folder / "latest_universal") == PathKind::kFile &&
         path_kind(folder / "latest") == PathKind::kNothing;
}

void export_deepspeed(const LogicalModel& model, const std::optional<TorchOptimizer>& optimizer,
                      const fs::path& out, const ExportOptions& options) {
  write_export(out, options, is_deepspeed_export, [&](const fs::path& folder) {
    const int64_t step = optimizer ? optimizer->step : 0;
    const std::string tag = fmt::format("global_step{}", step);
    const fs::path zero = folder / tag / "zero";
    make_folder(zero);
    for (const LogicalTensor& t : model.weights) {
      if (is_floating(t.dtype)) write_parameter(zero, model, t, optimizer);  // buffers are not read
    }
    write_optimizer_state(zero, model, optimizer);
    sync_directory(zero);
    write_model_states(folder / tag, step);
    sync_directory(folder / tag);
    ExportOptions in_fp32 = options;
    in_fp32.dtype = Dtype::kF32;
    write_config_files(folder, model.weights, model.config, read_side_files(model), in_fp32);
    write_synced(folder / "latest_universal", tag);
  });
}

}  // namespace weft
