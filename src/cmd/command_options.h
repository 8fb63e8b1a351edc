// cmd/command_options.h: the options of a command, without the parser's header.
//
// CLI11 parses them. Its header costs seconds in every file that includes it: only
// command_options.cpp and command_line.cpp do.
#pragma once

#include <cstdint>
#include <deque>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace weft {

class CommandOption {
 public:
  using Check = std::function<std::string(const std::string&)>;  // what is wrong, or nothing

  explicit CommandOption(CLI::Option* option) : option_(option) {}

  CommandOption* required();
  CommandOption* expected(int count);  // values at each use
  CommandOption* expected(int least, int most);
  CommandOption* take_all();  // of every use
  CommandOption* needs(const CommandOption* other);
  CommandOption* excludes(const CommandOption* other);
  CommandOption* check(const Check& check, const std::string& type_name);
  size_t count() const;  // uses on the command line
  std::string get_name() const;

 private:
  CLI::Option* option_;
};

// What is declared here lives as long as this. Each call names the variable that receives the
// value.
class CommandOptions {
 public:
  explicit CommandOptions(CLI::App* app) : app_(app) {}
  CommandOptions(const CommandOptions&) = delete;
  CommandOptions& operator=(const CommandOptions&) = delete;

  CommandOption* add_option(const std::string& names, std::string& to, const std::string& help);
  CommandOption* add_option(const std::string& names, int& to, const std::string& help);
  CommandOption* add_option(const std::string& names, int64_t& to, const std::string& help);
  CommandOption* add_option(const std::string& names, uint64_t& to, const std::string& help);
  CommandOption* add_option(const std::string& names, double& to, const std::string& help);
  CommandOption* add_option(const std::string& names, std::filesystem::path& to,
                            const std::string& help);
  CommandOption* add_option(const std::string& names, std::optional<std::string>& to,
                            const std::string& help);
  CommandOption* add_option(const std::string& names, std::optional<int64_t>& to,
                            const std::string& help);
  CommandOption* add_option(const std::string& names, std::optional<double>& to,
                            const std::string& help);
  CommandOption* add_option(const std::string& names, std::vector<std::string>& to,
                            const std::string& help);
  CommandOption* add_flag(const std::string& names, bool& to, const std::string& help);
  // At most one of the group's options may be used.
  CommandOptions* add_option_group(const std::string& name, const std::string& help);

 private:
  template <typename T>
  CommandOption* add(const std::string& names, T& to, const std::string& help);

  CLI::App* app_;
  std::deque<CommandOption> options_;
  std::vector<std::unique_ptr<CommandOptions>> groups_;
};

}  // namespace weft
