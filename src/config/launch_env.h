// config/launch_env.h: launch.env, the variables that a run file gives to its ranks.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace weft {

// What takes the place of a secret wherever keys are printed or stored.
inline constexpr const char* kHidden = "<hidden>";

// Whether a variable's name says that its value is a secret: TOKEN, SECRET, PASSWORD, KEY ...
bool is_secret_name(std::string_view name);

// Complaints about names that no variable can have, names that are weft's own, and values that no
// process can get.
void check_launch_env(const std::map<std::string, std::string>& env,
                      std::vector<std::string>* complaints);

// Into this process's environment, which its ranks inherit. Call it before any thread is started.
void apply_launch_env(const std::map<std::string, std::string>& env);

}  // namespace weft
