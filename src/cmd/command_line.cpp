// cmd/command_line.cpp: builds CLI11's parser from the table, and translates its errors.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>

#include "base/error.h"
#include "base/mapped_files.h"
#include "base/suggest.h"
#include "checkpoint/model_files.h"
#include "cmd/command.h"

namespace weft {
namespace {

int say_not_built(const std::string& name) {
  fmt::print(stderr, "weft: '{}' is not built yet\n", name);
  return 2;
}

std::vector<std::string> command_names() {
  std::vector<std::string> names;
  for (const Command& c : commands()) names.emplace_back(c.name);
  return names;
}

std::vector<std::string> option_names(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::Option* option : app.get_options()) {
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
  }
  return names;
}

[[noreturn]] void throw_unknown_command(const std::string& word) {
  const auto close = nearest(word, command_names());
  throw UserError(
      fmt::format("unknown command '{}'", word),
      close ? fmt::format("did you mean '{}'?", *close) : "'weft --help' lists the commands");
}

// What CLI11 could not parse: an unknown option, or an extra argument.
[[noreturn]] void throw_extra(const CLI::App& app, const std::string& word) {
  const std::string help = fmt::format("'weft {} --help' lists its options", app.get_name());
  if (!word.starts_with('-')) {
    throw UserError(fmt::format("weft {}: unexpected argument '{}'", app.get_name(), word), help);
  }
  const std::string name = word.substr(0, word.find('='));
  const std::vector<std::string> names = option_names(app);
  // An option of weft generate; elsewhere a key of the run file.
  if (name == "--device" && std::find(names.begin(), names.end(), "--set") != names.end()) {
    throw UserError(fmt::format("weft {}: unknown option '--device'", app.get_name()),
                    "use the run file's key launch.device: --set launch.device=cuda (or cpu)");
  }
  const auto close = nearest(name, names);
  throw UserError(fmt::format("weft {}: unknown option '{}'", app.get_name(), name),
                  close ? fmt::format("did you mean '{}'?", *close) : help);
}

// Parses and runs one subcommand. A command that is not built accepts any arguments.
int run_one(const Command& command, int argc, const char* const* argv) {
  CLI::App app(command.help, command.name);
  app.name(std::string(command.name));
  if (!command.add) app.allow_extras();
  CommandOptions options(&app);
  const RunCommand run = command.add ? command.add(options) : RunCommand();
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp&) {
    fmt::print("{}", app.help("weft"));
    return 0;
  } catch (const CLI::ExtrasError&) {
    throw_extra(app, app.remaining().front());
  } catch (const CLI::ParseError& e) {
    throw UserError(fmt::format("weft {}: {}", command.name, e.what()),
                    fmt::format("'weft {} --help' lists its options", command.name));
  }
  if (!run) return say_not_built(command.name);
  const int exit_code = run();
  // Results from a file that changed meanwhile are worthless. Training checks each batch itself;
  // rows that were only prefetched do not spoil a finished run.
  if (std::string_view(command.name) != "train") check_mapped_files();
  return exit_code;
}

std::string help_text() {
  std::string text =
      "weft trains language models from a Hugging Face folder to a Hugging Face folder.\n\nUsage: "
      "weft COMMAND ...\n\n";
  for (const Command& c : commands()) {
    text += fmt::format("  {:<10} {}{}\n", c.name, c.help, c.add ? "" : " (not built yet)");
  }
  return text +
         "\n'weft COMMAND --help' lists a command's options; 'weft --version' shows the build.\n";
}

}  // namespace

namespace {
std::vector<std::string> words;
}

CommandOption::Check at_least(int64_t least, int64_t most) {
  return [least, most](const std::string& text) -> std::string {
    int64_t value = 0;
    const char* end = text.data() + text.size();
    const auto [stop, error] = std::from_chars(text.data(), end, value);
    if (error == std::errc() && stop == end && value >= least && value <= most) return "";
    if (most < INT64_MAX)
      return fmt::format("wanted a whole number from {} to {}, got {}", least, most, text);
    return fmt::format("wanted a whole number >= {}, got {}", least, text);
  };
}

CommandOption::Check not_negative() {
  return [](const std::string& text) -> std::string {
    double value = 0;
    const char* end = text.data() + text.size();
    const auto [stop, error] = std::from_chars(text.data(), end, value);
    if (error == std::errc() && stop == end && value >= 0) return "";
    return fmt::format("wanted a number >= 0, got {}", text);
  };
}

const std::vector<std::string>& command_words() { return words; }

int run_command_line(int argc, const char* const* argv) {
  words.assign(argv, argv + argc);
  read_models_of_others();
  const std::string first = argc > 1 ? argv[1] : "";
  if (first.empty()) {
    fmt::print(stderr, "{}", help_text());
    return 2;
  }
  if (first == "--help" || first == "-h" || first == "help") {
    fmt::print("{}", help_text());
    return 0;
  }
  if (first == "--version") {
    fmt::print("{}\n", version_text());
    return 0;
  }
  for (const Command& c : commands()) {
    if (first == c.name) return run_one(c, argc - 1, argv + 1);
  }
  throw_unknown_command(first);
}

}  // namespace weft
