// cmd/doctor.cpp: weft doctor: what this machine has, what the build lacks, and their speeds.
#include <link.h>

#include <algorithm>

#include "base/error.h"
#include "base/json.h"
#include "base/log.h"
#include "base/printable.h"
#include "cmd/command.h"
#include "cmd/doctor_gpus.h"
#include "kernel/cpu/level.h"
#include "kernel/device_kernels.h"
#include "launch/command_output.h"
#include "planning/backend.h"
#include "planning/gpu_speeds.h"
#include "planning/machine.h"
#include "planning/repeat.h"
#include "planning/speeds.h"

namespace weft {
namespace {

struct DoctorWords {
  bool measure = false, json = false;
};

// The shared libraries that are loaded, by file name: the linker knows better than a list in our
// code.
std::vector<std::string> loaded_libraries() {
  std::vector<std::string> names;
  const auto add = [](dl_phdr_info* info, size_t, void* list) {
    const std::string name = std::filesystem::path(info->dlpi_name).filename().string();
    const bool library = name.starts_with("lib") && name.find(".so") != std::string::npos;
    if (library) static_cast<std::vector<std::string>*>(list)->push_back(name);
    return 0;
  };
  ::dl_iterate_phdr(add, &names);
  std::sort(names.begin(), names.end());
  return names;
}

template <typename List>
Json list_to_json(const List& list) {
  Json::Array array;
  for (const auto& item : list) array.emplace_back(item);
  return array;
}

// As `slurm 22.05.8`, or that its commands are not on the PATH.
std::string slurm_version() {
  const auto output = run_command({"sbatch", "--version"});
  if (!output || output->exit_code != 0) return "no sbatch here";
  return printable_line(output->out.substr(0, output->out.find('\n')));
}

// What this build lacks, and what it would be good for.
std::vector<std::string> missing_parts() {
  std::vector<std::string> parts = missing_gpu_parts();
  std::string commands_missing;
  for (const Command& c : commands()) {
    if (!c.add)
      commands_missing += fmt::format("{}{}", commands_missing.empty() ? "" : ", ", c.name);
  }
  if (!commands_missing.empty()) parts.push_back("commands: " + commands_missing);
  return parts;
}

Json gather(const Machine& m, const std::optional<Speeds>& speeds) {
  const auto levels = available_levels();
  Json cpu(Json::Object{{"model", m.cpu_model}, {"cores", m.cores}});
  cpu.set("features", list_to_json(m.cpu_features));
  cpu.set("levels", list_to_json(levels));
  cpu.set("level", cpu_kernels().name);
  Json out = version_json();
  out.set("cpu", cpu);
  out.set("memory",
          Json::Object{{"total_bytes", m.memory_bytes}, {"available_bytes", m.available_bytes}});
  out.set("huge_pages", m.huge_pages);
  out.set("gpus", list_to_json(m.gpus));
  out.set("cuda", gather_gpus());
  out.set("libraries", list_to_json(loaded_libraries()));
  out.set("engines",
          Json::Object{{"slurm", slurm_version()}, {"ray", "the wheel has it (docs/ray.md)"}});
  out.set("lacks", list_to_json(missing_parts()));
  out.set("speeds", speeds ? speeds_to_json(*speeds) : Json());
  return out;
}

std::string join(const Json& list, const char* none) {
  std::string text;
  for (const Json& item : list.as_array()) {
    text += fmt::format("{}{}", text.empty() ? "" : ", ", item.as_string());
  }
  return text.empty() ? none : text;
}

void print_speeds(const std::optional<Speeds>& s) {
  if (!s) {
    fmt::print("speeds      not measured; 'weft doctor --measure' takes a second or two\n");
    return;
  }
  fmt::print("speeds      level {}; 1 thread, {} threads\n", s->level, s->threads);
  fmt::print("  product   fp32 {:.0f}, {:.0f} GFLOP/s; bf16 {:.0f}, {:.0f} GFLOP/s\n",
             s->gflops_fp32_one, s->gflops_fp32, s->gflops_bf16_one, s->gflops_bf16);
  fmt::print("  copy      {:.1f} GB/s read and written\n", s->copy_gb_per_s);
}

void print_machine(const Json& all, const Machine& m, const std::optional<Speeds>& speeds) {
  constexpr double kGib = 1024.0 * 1024 * 1024;
  const Json& cpu = all.at("cpu");
  fmt::print("{}\n", version_text());
  fmt::print("cpu         {}, {} cores\n", m.cpu_model, m.cores);
  fmt::print("  features  {}\n", join(cpu.at("features"), "none known"));
  fmt::print("  levels    {}; chosen: {}\n", join(cpu.at("levels"), "none"),
             cpu.at("level").as_string());
  fmt::print("memory      {:.1f} GiB, {:.1f} GiB available\n",
             static_cast<double>(m.memory_bytes) / kGib,
             static_cast<double>(m.available_bytes) / kGib);
  fmt::print("huge pages  {}\n", m.huge_pages);
  fmt::print("gpus        {}\n", join(all.at("gpus"), "none seen"));
  print_gpus(all.at("cuda"));
  fmt::print("libraries   {}\n", join(all.at("libraries"), "none"));
  fmt::print("engines     slurm: {}; ray: the wheel has it (docs/ray.md)\n",
             all.at("engines").at("slurm").as_string());
  for (const Json& part : all.at("lacks").as_array())
    fmt::print("lacks       {}\n", part.as_string());
  print_speeds(speeds);
}

// Measurements are printed whether or not they can be stored.
template <typename Fn>
void keep(const char* what, const Fn& save) {
  try {
    save();
  } catch (const std::exception& e) {
    log_warning("speeds of the {} could not be stored: {}", what, e.what());
  }
}

void report_busy(const char* what, double spread) {
  if (spread <= kBusySpread) return;
  log_warning(
      "the {} was busy during the measurement: the median repetition took {:.0f} % longer than the "
      "best, so the speeds may be too low; measure again when nothing else runs",
      what, 100 * spread);
}

// Speeds of the first GPU, where this build can use it.
std::optional<GpuSpeeds> gpu_speeds(bool measure) {
  const std::string here = first_gpu();
  if (measure && cuda_kernels() && here.empty())
    log_warning("speeds of a GPU were not measured: {}", read_cuda_info().why_none);
  if (!measure || !cuda_kernels() || here.empty()) return load_gpu_speeds(here);
  const std::unique_ptr<Device> gpu = open_cuda_device(0);
  const bool has_bf16 = read_cuda_info().gpus.at(0).major >= 8;
  const GpuSpeeds speeds =
      measure_gpu_speeds(*cuda_kernels(), gpu.get(), has_bf16 ? Dtype::kBf16 : Dtype::kF16);
  report_busy("GPU", speeds.spread);
  keep("GPU", [&] { save_gpu_speeds(speeds); });
  return speeds;
}

void print_gpu_speeds(const GpuSpeeds& s) {
  fmt::print("gpu speeds  {}\n", s.gpu);
  const std::string tf32 = s.tflops_tf32 > 0 ? fmt::format(", tf32 {:.0f}", s.tflops_tf32) : "";
  fmt::print("  product   fp32 {:.0f}{}, bf16 {:.0f} TFLOP/s\n", s.tflops_fp32, tf32,
             s.tflops_bf16);
  fmt::print("  attention fp32 {:.0f}, bf16 {:.0f} TFLOP/s\n", s.tflops_attention_fp32,
             s.tflops_attention_bf16);
  if (s.tflops_attention_builtin_bf16 > 0)
    fmt::print(
        "            bf16: packed rows {:.0f}, built-in kernel {:.0f}; dropout fp32 {:.0f}, bf16 "
        "{:.0f}\n",
        s.tflops_attention_packed_bf16, s.tflops_attention_builtin_bf16,
        s.tflops_attention_dropout_fp32, s.tflops_attention_dropout_bf16);
  fmt::print("  copy      {:.0f} GB/s read and written\n", s.copy_gb_per_s);
}

int run_doctor(const DoctorWords& options) {
  check_environment();
  const Machine machine = read_machine();
  std::optional<Speeds> speeds = load_speeds(cpu_kernels().name);
  if (options.measure) {
    speeds = measure_speeds(cpu_kernels(), machine.cores);
    report_busy("CPU", speeds->spread);
    keep("CPU", [&] { save_speeds(*speeds); });
  }
  Json all = gather(machine, speeds);
  const std::optional<GpuSpeeds> gpu = gpu_speeds(options.measure);
  all.set("gpu_speeds", gpu ? gpu_speeds_to_json(*gpu) : Json());
  if (options.json) {
    fmt::print("{}\n", all.dump(2));
  } else {
    print_machine(all, machine, speeds);
    if (gpu) print_gpu_speeds(*gpu);
  }
  return 0;
}

}  // namespace

RunCommand add_doctor(CommandOptions& app) {
  const auto options = std::make_shared<DoctorWords>();
  app.add_flag("--measure", options->measure, "measure speeds, and store them for 'weft plan'");
  app.add_flag("--json", options->json, "one JSON object");
  return [options] { return run_doctor(*options); };
}

}  // namespace weft
