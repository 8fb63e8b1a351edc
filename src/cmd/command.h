// cmd/command.h: what a command is, and the table of them.
//
// A command is one file with one function add_NAME: it declares its options on the given CLI::App,
// and returns what to run once they are parsed. The table is in commands.cpp.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/json.h"

namespace CLI {
class App;
}

namespace weft {

using RunCommand = std::function<int()>;  // the exit code; errors are thrown
using AddCommand = RunCommand (*)(CLI::App& app);

struct Command {
  const char* name;
  const char* help;  // one line
  AddCommand add;    // null: not built yet
};
const std::vector<Command>& commands();

// Defined in cmd/NAME.cpp: a new command is a file and a row in the table.
RunCommand add_train(CLI::App& app);
RunCommand add_verify(CLI::App& app);
RunCommand add_plan(CLI::App& app);
RunCommand add_eval(CLI::App& app);
RunCommand add_generate(CLI::App& app);
RunCommand add_export(CLI::App& app);
RunCommand add_inspect(CLI::App& app);
RunCommand add_hash(CLI::App& app);
RunCommand add_diff(CLI::App& app);
RunCommand add_tokenize(CLI::App& app);
RunCommand add_doctor(CLI::App& app);
RunCommand add_corpus(CLI::App& app);
RunCommand add_plot(CLI::App& app);
RunCommand add_cache(CLI::App& app);

// Validates an option's text: a whole number >= `least`; else returns what is wrong with it.
std::function<std::string(const std::string&)> at_least(int64_t least);
std::function<std::string(const std::string&)> not_negative();  // the same for any number >= 0

std::string version_text();
Json version_json();  // {"version", "commit", "compiler", "back_ends"}

// This program's own arguments, for starting it again as a rank.
const std::vector<std::string>& command_words();

// Parses the arguments and runs the command. UserError where they are wrong.
int run_command_line(int argc, const char* const* argv);

}  // namespace weft
