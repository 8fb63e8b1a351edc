// cmd/inspect.cpp: weft inspect PATH [--json] [--verify].
#include "cmd/inspect.h"

#include <algorithm>

#include "base/error.h"
#include "base/path.h"
#include "base/printable.h"
#include "base/suggest.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/foreign.h"
#include "cmd/command.h"
#include "data/rows.h"
#include "io/file_kind.h"
#include "io/hf_folder.h"
#include "io/torch_file.h"
#include "train/local_copy.h"

namespace weft {
namespace {

namespace fs = std::filesystem;

bool has_tokenizer(const fs::path& folder) {
  return fs::exists(folder / "tokenizer.json") || fs::exists(folder / "vocab.json") ||
         fs::exists(folder / "spiece.model");
}

// A folder of data has neither model nor tokenizer files, and is not a run directory.
bool is_data(const std::string& path) {
  if (fs::is_regular_file(path)) return !path.ends_with(".safetensors") && !is_torch_file(path);
  if (path.find("://") != std::string::npos || path.find('*') != std::string::npos) return true;
  const fs::path folder = path;
  if (!fs::is_directory(folder)) return false;
  for (const char* name : {"dataset_info.json", "dataset_dict.json"}) {
    if (fs::exists(folder / name)) return true;
  }
  for (const char* name : {"config.json", "run.yaml", "checkpoints"}) {
    if (fs::exists(folder / name)) return false;
  }
  if (is_checkpoint(folder) || is_deepspeed(folder) || is_dcp(folder) || has_tokenizer(folder)) {
    return false;
  }
  try {
    return !expand_paths({path}, "inspect", "auto").paths.empty();
  } catch (const UserError&) {  // nothing there that looks like rows
    return false;
  }
}

// Raw bytes must not reach the terminal. Tables and tensors have their own readers.
std::string kind_of_binary(const std::string& path) {
  const bool has_reader =
      path.ends_with(".safetensors") || is_table_file(path) || is_torch_file(path);
  return fs::is_regular_file(path) && !has_reader ? binary_kind_of_file(path) : "";
}

Json inspect_binary(const std::string& path, const std::string& kind) {
  Json out;
  out.set("kind", kind);
  out.set("path", path);
  out.set("bytes", file_info(path).size);
  return out;
}

// Options that apply only to some paths.
struct Special {
  std::vector<const CommandOption*> of_data, of_run_files;
};

// An option without effect is rejected, not ignored.
void refuse_idle(const std::vector<const CommandOption*>& idle, const std::string& what,
                 const std::string& hint) {
  for (const CommandOption* option : idle) {
    if (option->count() == 0) continue;
    throw UserError(fmt::format("{} has no effect here: {}", option->get_name(), what), hint);
  }
}

// For a missing path: a similar name, or the part that does not exist. A name may also be a hub
// name.
void require_path(const std::string& path) {
  if (fs::exists(path)) return;
  const fs::path given = path;
  const fs::path folder = given.has_parent_path() ? given.parent_path() : ".";
  try {
    static_cast<void>(resolve_model_path(path));
  } catch (const UserError& e) {
    if (!e.hint().empty()) throw;
    if (!fs::is_directory(folder)) {
      throw UserError(fmt::format("{}: {} is not a folder", e.what(), folder.string()),
                      "check the path; a relative one starts at the current directory");
    }
    throw UserError(
        e.what() + did_you_mean(given.filename().string(), folder_names(folder)),
        "wanted a checkpoint, run directory, model folder, file of tensors, data, tokenizer or "
        "run file (.yaml)");
  }
}

Json inspect_other(const std::string& path) {
  require_path(path);
  if (is_tokenizer_file(path)) return inspect_tokenizer(path);
  if (const std::string kind = kind_of_binary(path); !kind.empty()) {
    return inspect_binary(path, kind);
  }
  const bool model = is_checkpoint(path) || is_deepspeed(path) || is_dcp(path) ||
                     fs::exists(fs::path(path) / "config.json");
  if (!model && has_tokenizer(path)) return inspect_tokenizer(path);
  return inspect_model(path);
}

Json inspect(const std::string& path, const InspectRows& options, const Special& special) {
  if (is_remote_model(path)) {
    const LocalCopy copy(path);
    Json found = inspect(copy.path(), options, special);
    if (found.find("path")) found.set("path", path);
    return found;
  }
  require_no_list(path);
  if (path.ends_with(".yaml") || path.ends_with(".yml")) {
    refuse_idle(special.of_data, path + " is a run file, which has its own data section",
                "--batches N shows what its rows become; --set data.KEY=value changes a key");
    return inspect_batches(path, options);
  }
  if (!is_tokenizer_file(path) && kind_of_binary(path).empty() && is_data(path)) {
    refuse_idle(special.of_run_files, path + " is data, not a run file (.yaml)",
                "--rows N shows rows; --tokenizer FOLDER, with --text or --source and --target, "
                "what they become");
    return inspect_rows(path, options);
  }
  Json found = inspect_other(path);
  for (const auto& idle : {special.of_data, special.of_run_files}) {
    refuse_idle(idle, path + " is neither data nor a run file", "leave it out");
  }
  return found;
}

Json verify_alone(const std::string& path, const Special& special) {
  for (const auto& idle : {special.of_data, special.of_run_files}) {
    refuse_idle(idle, "--verify checks checkpoints and files of torch.save", "leave it out");
  }
  const LocalCopy copy(path, LocalCopy::Part::kCheckpoints);
  const Json found = verify_checkpoints(copy.path());
  return copy.path() == path ? found : parse_json(copy.as_given(found.dump()), path);
}

// On its key's line; several lines go below it, indented.
void print_key_text(const std::string& key, const std::string& text, size_t blanks) {
  if (text.find('\n') == std::string::npos) {
    return fmt::print("{:{}}{}: {}\n", "", blanks, printable_line(key), printable(text));
  }
  fmt::print("{:{}}{}:\n", "", blanks, printable_line(key));
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    fmt::print("{:{}}{}\n", "", blanks + 2, printable(text.substr(begin, end - begin)));
    begin = end + 1;
  }
}

bool is_list_of_texts(const std::string& key, const Json& value) {
  return key.ends_with("texts") && value.is_array();
}

// Objects and lists of them take one indented line per entry; everything else is on its key's line.
void print_value(const std::string& key, const Json& value, int indent) {
  const auto blanks = static_cast<size_t>(indent);
  if (value.is_object()) {
    fmt::print("{:{}}{}:\n", "", blanks, printable_line(key));
    for (const auto& [k, v] : value.as_object()) print_value(k, v, indent + 2);
  } else if (value.is_array() && !value.as_array().empty() && value.as_array()[0].is_object()) {
    for (const Json& entry : value.as_array()) print_value(key, entry, indent);
  } else if (is_list_of_texts(key, value)) {
    for (const Json& text : value.as_array()) {
      print_key_text(key.substr(0, key.size() - 1), text.as_string(), blanks);
    }
  } else if (value.is_string()) {
    print_key_text(key, value.as_string(), blanks);
  } else {
    fmt::print("{:{}}{}: {}\n", "", blanks, printable_line(key), printable_json(value.dump()));
  }
}

}  // namespace

RunCommand add_inspect(CommandOptions& app) {
  struct Options {
    std::string path;
    bool json = false, verify = false;
    InspectRows rows;
    Special special;
  };
  const auto options = std::make_shared<Options>();
  app.add_option("PATH", options->path,
                 "checkpoint, run directory, folder, file of tensors, data, tokenizer or run file")
      ->required();
  app.add_flag("--json", options->json, "print one JSON object");
  app.add_flag(
      "--verify", options->verify,
      "checkpoint, run directory, files of torch.save: read every byte, compare all checksums; "
      "exit 1 where one is wrong");
  InspectRows& rows = options->rows;
  const auto add_data = [&](const char* name, auto& value, const char* help) {
    CommandOption* option = app.add_option(name, value, help);
    options->special.of_data.push_back(option);
    return option;
  };
  add_data("--rows", rows.num_rows, "data: how many rows to show")->check(at_least(0), "N");
  CommandOption* tokenizer =
      add_data("--tokenizer", rows.tokenizer,
               "data: folder with tokenizer files, or bytes: shows lengths and labels");
  add_data("--text", rows.data.text, "data: template of the text")->needs(tokenizer);
  add_data("--source", rows.data.source, "data: template of the prompt")->needs(tokenizer);
  add_data("--target", rows.data.target, "data: template of the answer")->needs(tokenizer);
  add_data("--messages", rows.data.messages, "data: column of chat rows")->needs(tokenizer);
  add_data("--seq-length", rows.data.seq_length, "data: where rows are cut")->needs(tokenizer);
  options->special.of_run_files = {
      app.add_option("--batches", rows.num_batches, "run file: how many batches to show")
          ->check(at_least(0), "N"),
      app.add_option("--set", rows.sets, "run file: section.key=value, overrides it")
          ->take_all()
          ->expected(1)};
  return [options] {
    const Json found = options->verify ? verify_alone(options->path, options->special)
                                       : inspect(options->path, options->rows, options->special);
    if (options->json) {
      fmt::print("{}\n", printable_json(found.dump(2)));
    } else {
      for (const auto& [key, value] : found.as_object()) print_value(key, value, 0);
    }
    if (options->verify) require_sound(found);
    return 0;
  };
}

}  // namespace weft
