// exec/ops/dropout.cpp: dropout of activations as calls.
#include "graph/ops/dropout.h"

#include "exec/op_binding.h"

namespace weft {
namespace {

NodeCall bind_dropout(const BindContext& b, const Node& node) {
  const View& v = b.view;
  const Value& x = v.value(node.inputs[0]);
  const DropoutAttr& attr = node.as<DropoutAttr>();
  const DropoutArgs a{.B = x.shape[0],
                      .T = x.shape[1],
                      .C = x.shape[2],
                      .dtype = x.dtype,
                      .rate = attr.rate,
                      .seed = attr.seed,
                      .site = attr.site,
                      .first_column = attr.first_column,
                      .rows = v.at<int64_t>(node.inputs[1]),
                      .x = v.at(node.inputs[0]),
                      .y = v.at(node.outputs[0])};
  return [a, &k = b.kernels, c = b.context](const StepScalars&) { k.dropout(*c, a); };
}

}  // namespace

void add_dropout_bindings(Bindings* bindings) {
  bindings->push_back({&kDropoutOp, no_workspace, bind_dropout, no_device_limits, cost_of_bytes,
                       no_wire, suits_device, no_shortening});
}

}  // namespace weft
