// A CUDA device that computes nothing, for torch's CPU wheel.
//
// Without one the wheel refuses autograd on tensors "on cuda": the engine asks the device for its guard, its
// streams and its hooks. Here all of them answer, and do nothing. FakeTensorMode does the rest: it knows shapes,
// types and devices of what every operation would give. Loaded by LD_PRELOAD, for it has to be registered before
// torch asks for the first time.

#include <ATen/detail/CUDAHooksInterface.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>

namespace {

constexpr c10::DeviceType CUDA = c10::DeviceType::CUDA;
const c10::Device ONLY(CUDA, 0);
const c10::Stream STREAM(c10::Stream::DEFAULT, ONLY);

struct IdleGuard final : c10::impl::DeviceGuardImplInterface {
  c10::DeviceType type() const override { return CUDA; }
  c10::DeviceIndex deviceCount() const noexcept override { return 1; }

  c10::Device getDevice() const override { return ONLY; }
  c10::Device exchangeDevice(c10::Device) const override { return ONLY; }
  void setDevice(c10::Device) const override {}
  void uncheckedSetDevice(c10::Device) const noexcept override {}

  c10::Stream getStream(c10::Device) const override { return STREAM; }
  c10::Stream getDefaultStream(c10::Device) const override { return STREAM; }
  c10::Stream exchangeStream(c10::Stream) const override { return STREAM; }
  bool queryStream(const c10::Stream&) const override { return true; }
  void synchronizeStream(const c10::Stream&) const override {}

  void record(void**, const c10::Stream&, c10::DeviceIndex, c10::EventFlag) const override {}
  void block(void*, const c10::Stream&) const override {}
  bool queryEvent(void*) const override { return true; }
  void destroyEvent(void*, c10::DeviceIndex) const noexcept override {}
};

// Torch looks for hooks by this name.
struct CUDAHooks final : at::CUDAHooksInterface {
  explicit CUDAHooks(at::CUDAHooksArgs) {}
  void init() const override {}
  bool hasCUDA() const override { return true; }
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
  bool hasPrimaryContext(c10::DeviceIndex) const override { return true; }
  c10::DeviceIndex deviceCount() const override { return 1; }
  c10::DeviceIndex getCurrentDevice() const override { return 0; }
};

// Not by C10_REGISTER_GUARD_IMPL: its registrar of this device may be in the wheel's own libraries.
const IdleGuard guard;
const bool registered = [] {
  c10::impl::device_guard_impl_registry[static_cast<size_t>(CUDA)].store(&guard);
  return true;
}();

}  // namespace

namespace at {
using ::CUDAHooks;
REGISTER_CUDA_HOOKS(CUDAHooks)
}  // namespace at
