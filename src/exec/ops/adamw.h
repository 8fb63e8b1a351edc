// exec/ops/adamw.h: the arguments of an update, for a GPU's table of all of them too.
#pragma once

#include "exec/view.h"

namespace weft {

AdamwArgs adamw_args(const View& v, const Node& node);  // without the step's scalars

}  // namespace weft
