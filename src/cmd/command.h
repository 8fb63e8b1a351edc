// cmd/command.h: what a command is, and the table of them.
//
// A command is one file with one function add_NAME: it declares its options, and returns what to
// run once they are parsed. The table is in commands.cpp.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/json.h"
#include "cmd/command_options.h"

namespace weft {

using RunCommand = std::function<int()>;  // the exit code; errors are thrown
using AddCommand = RunCommand (*)(CommandOptions& app);

struct Command {
  const char* name;
  const char* help;  // one line
  AddCommand add;    // null: not built yet
};
const std::vector<Command>& commands();

// Defined in cmd/NAME.cpp: a new command is a file and a row in the table.
RunCommand add_train(CommandOptions& app);
RunCommand add_verify(CommandOptions& app);
RunCommand add_plan(CommandOptions& app);
RunCommand add_eval(CommandOptions& app);
RunCommand add_generate(CommandOptions& app);
RunCommand add_export(CommandOptions& app);
RunCommand add_inspect(CommandOptions& app);
RunCommand add_hash(CommandOptions& app);
RunCommand add_diff(CommandOptions& app);
RunCommand add_tokenize(CommandOptions& app);
RunCommand add_status(CommandOptions& app);
RunCommand add_agent(CommandOptions& app);
RunCommand add_doctor(CommandOptions& app);
RunCommand add_corpus(CommandOptions& app);
RunCommand add_plot(CommandOptions& app);
RunCommand add_cache(CommandOptions& app);

// A whole number from `least` to `most`; any number >= 0.
CommandOption::Check at_least(int64_t least, int64_t most = INT64_MAX);
CommandOption::Check not_negative();

void note_build();  // so that nodes can compare what they were built from (base/version.h)
std::string version_text();
Json version_json();  // {"version", "commit", "compiler", "back_ends"}

// This program's own arguments, for starting it again as a rank.
const std::vector<std::string>& command_words();

// Parses the arguments and runs the command. UserError where they are wrong.
int run_command_line(int argc, const char* const* argv);

}  // namespace weft
