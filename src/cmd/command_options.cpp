// cmd/command_options.cpp: hands everything to CLI11.
#include "cmd/command_options.h"

#include <CLI/CLI.hpp>

namespace weft {

CommandOption* CommandOption::required() {
  option_->required();
  return this;
}

CommandOption* CommandOption::expected(int count) {
  option_->expected(count);
  return this;
}

CommandOption* CommandOption::expected(int least, int most) {
  option_->expected(least, most);
  return this;
}

CommandOption* CommandOption::take_all() {
  option_->take_all();
  return this;
}

CommandOption* CommandOption::needs(const CommandOption* other) {
  option_->needs(other->option_);
  return this;
}

CommandOption* CommandOption::excludes(const CommandOption* other) {
  option_->excludes(other->option_);
  return this;
}

CommandOption* CommandOption::check(const Check& check, const std::string& type_name) {
  option_->check(check, type_name);
  return this;
}

size_t CommandOption::count() const { return option_->count(); }

std::string CommandOption::get_name() const { return option_->get_name(); }

template <typename T>
CommandOption* CommandOptions::add(const std::string& names, T& to, const std::string& help) {
  return &options_.emplace_back(app_->add_option(names, to, help));
}

CommandOption* CommandOptions::add_option(const std::string& names, std::string& to,
                                          const std::string& help) {
  return add(names, to, help);
}

CommandOption* CommandOptions::add_option(const std::string& names, int& to,
                                          const std::string& help) {
  return add(names, to, help);
}

CommandOption* CommandOptions::add_option(const std::string& names, int64_t& to,
                                          const std::string& help) {
  return add(names, to, help);
}

CommandOption* CommandOptions::add_option(const std::string& names, uint64_t& to,
                                          const std::string& help) {
  return add(names, to, help);
}

CommandOption* CommandOptions::add_option(const std::string& names, double& to,
                                          const std::string& help) {
  return add(names, to, help);
}

CommandOption* CommandOptions::add_option(const std::string& names, std::filesystem::path& to,
                                          const std::string& help) {
  return add(names, to, help);
}

CommandOption* CommandOptions::add_option(const std::string& names, std::optional<std::string>& to,
                                          const std::string& help) {
  return add(names, to, help);
}

CommandOption* CommandOptions::add_option(const std::string& names, std::optional<int64_t>& to,
                                          const std::string& help) {
  return add(names, to, help);
}

CommandOption* CommandOptions::add_option(const std::string& names, std::optional<double>& to,
                                          const std::string& help) {
  return add(names, to, help);
}

CommandOption* CommandOptions::add_option(const std::string& names, std::vector<std::string>& to,
                                          const std::string& help) {
  return add(names, to, help);
}

CommandOption* CommandOptions::add_flag(const std::string& names, bool& to,
                                        const std::string& help) {
  return &options_.emplace_back(app_->add_flag(names, to, help));
}

CommandOptions* CommandOptions::add_option_group(const std::string& name, const std::string& help) {
  CLI::App* group = app_->add_option_group(name, help);
  group->require_option(0, 1);
  return groups_.emplace_back(std::make_unique<CommandOptions>(group)).get();
}

}  // namespace weft
