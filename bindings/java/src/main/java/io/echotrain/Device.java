package io.echotrain;

import io.echotrain.internal.DeviceInfo;
import io.echotrain.internal.RuntimeHandle;
import io.echotrain.internal.Bindings;
import java.util.ArrayList;
import java.util.List;

/** An opened Vulkan device with its kernels; trainers share it. */
public final class Device {
  final RuntimeHandle handle;

  /** {@code selector}: empty for the first, an index, or part of a name. */
  public Device(String selector) { this(selector, 0); }

  /** {@code memoryLimitBytes} of device memory may be taken; 0: what there is. */
  public Device(String selector, long memoryLimitBytes) { this(selector, memoryLimitBytes, ""); }

  /** {@code tuning}: a file of {@link #tune}; empty: the user's, if there is one. */
  public Device(String selector, long memoryLimitBytes, String tuning) {
    Natives.load();
    handle = new RuntimeHandle(selector, memoryLimitBytes, tuning);
    Natives.free(this, handle::delete);
  }

  /**
   * Finds the fastest kernels on this device for the models whose trainers have had their first batch, by trying, and
   * keeps them in the file {@code path} (empty: for all later runs of this user). Trainers made later use them.
   */
  public void tune(String path) { handle.tune(path); }

  public Device() { this(""); }

  public String name() { return handle.device().getName(); }

  public String driver() { return handle.device().getDriver(); }

  /** Names of the Vulkan devices, discrete GPUs first. */
  public static List<String> list() {
    Natives.load();
    List<String> names = new ArrayList<>();
    for (DeviceInfo info : Bindings.devices()) names.add(info.getName());
    return names;
  }

  /**
   * For training on a CPU device: asks for 512-bit vectors where the processor has them and the driver gains by
   * them (Mesa 25 and later). Call it before the first device is opened.
   */
  public static void preferWideCpuVectors() {
    Natives.load();
    Bindings.prefer_wide_cpu_vectors();
  }
}
