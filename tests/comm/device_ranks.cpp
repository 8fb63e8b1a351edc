// tests/comm/device_ranks.cpp: the CPU's tree queued on a fake device, and waiting.
#include "tests/comm/device_ranks.h"

#include "comm/reduce.h"

namespace weft::testing {
namespace {

void queue_reduce_tree(const Context& context, const ReduceTreeArgs& args) {
  FakeDevice::queue_work(context.stream, [args] {
    const int64_t bytes = args.count * dtype_bytes(args.dtype);
    std::vector<char> sum(static_cast<size_t>(bytes));
    reduce_tree(args.in, args.num_in, sum.data(), args.count, args.dtype,
                args.is_max ? Reduce::kMax : Reduce::kSum);
    for (int i = 0; i < args.num_out; ++i) {
      std::copy(sum.begin(), sum.end(), static_cast<char*>(args.out[i]));
    }
  });
}

class WaitingComm : public Comm {
 public:
  WaitingComm(std::unique_ptr<Comm> inner, FakeDevice* device)
      : inner_(std::move(inner)), device_(device) {}

  int rank() const override { return inner_->rank(); }
  int size() const override { return inner_->size(); }
  const char* name() const override { return inner_->name(); }
  void all_reduce(void* data, int64_t count, Dtype dtype, Reduce op) override {
    inner_->all_reduce(data, count, dtype, op);
    wait();
  }
  void reduce_scatter(const void* in, void* out, int64_t count, Dtype dtype) override {
    inner_->reduce_scatter(in, out, count, dtype);
    wait();
  }
  void all_gather(const void* in, void* out, int64_t bytes) override {
    inner_->all_gather(in, out, bytes);
    wait();
  }
  void all_to_all(const void* in, void* out, int64_t bytes) override {
    inner_->all_to_all(in, out, bytes);
    wait();
  }
  void broadcast(void* data, int64_t bytes, int root) override {
    inner_->broadcast(data, bytes, root);
    wait();
  }
  void send(const void* data, int64_t bytes, int to) override {
    inner_->send(data, bytes, to);
    wait();
  }
  void recv(void* data, int64_t bytes, int from) override {
    inner_->recv(data, bytes, from);
    wait();
  }
  void barrier() override {
    inner_->barrier();
    wait();
  }
  std::unique_ptr<Comm> split(int color, int key) override {
    return make_waiting_comm(inner_->split(color, key), device_);
  }
  void abort(const std::string& reason) override { inner_->abort(reason); }
  bool is_aborted() const override { return inner_->is_aborted(); }
  void set_deadline_ms(int64_t ms) override { inner_->set_deadline_ms(ms); }
  int64_t deadline_ms() const override { return inner_->deadline_ms(); }
  void set_no_deadline(bool patient) override { inner_->set_no_deadline(patient); }
  void drop_deadline() override { inner_->drop_deadline(); }
  bool waits_on_host() const override { return inner_->waits_on_host(); }
  void check_queued(int64_t waited_ms, int64_t allowed_ms) override {
    inner_->check_queued(waited_ms, allowed_ms);
  }

 private:
  void wait() {
    for (int op = 0; op < kNumCommOps; ++op) counts_[op] = inner_->count(static_cast<CommOp>(op));
    device_->set_watch(
        [this](int64_t waited_ms) { inner_->check_queued(waited_ms, inner_->deadline_ms()); });
    device_->wait();
  }

  std::unique_ptr<Comm> inner_;
  FakeDevice* device_;
};

}  // namespace

const DeviceKernels& fake_device_kernels() {
  static const DeviceKernels kernels = [] {
    DeviceKernels k{};
    k.reduce_tree = queue_reduce_tree;
    return k;
  }();
  return kernels;
}

std::unique_ptr<Comm> make_waiting_comm(std::unique_ptr<Comm> inner, FakeDevice* device) {
  return std::make_unique<WaitingComm>(std::move(inner), device);
}

}  // namespace weft::testing
